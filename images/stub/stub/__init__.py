"""An honest stand-in for vLLM 0.26.0: the same doors, the same answers' shape, no model behind them."""
