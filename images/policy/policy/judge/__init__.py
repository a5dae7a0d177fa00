"""What a request body must be: bytes and rules in, a verdict out. No clock, no network, no files.

Memory beyond the body itself, in bodies (measured at 250 MB): 1 for one long text, 4 if there is a character beyond
U+FFFF in it, 3 for many messages of 160 characters, 18 for nothing but objects of one short field. A refusal takes no
more than a verdict: the validator, which copies what it complains about, is shown an outline.
"""

from policy.judge.rules import Rules
from policy.judge.verdict import Facts, Verdict, Violation

__all__ = ["Facts", "Rules", "Verdict", "Violation"]
