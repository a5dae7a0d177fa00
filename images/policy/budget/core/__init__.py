"""What decides: no clock, no file, no network. Moments are passed in."""
