"""The parts of the policy service that are pure, or nearly."""
