"""`isthmus demo`: real prompts through a real stack, in good times and bad, each answer held against the policy."""
