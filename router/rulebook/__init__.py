"""The policy as a file: what may stand in it, how it is read and tried out, and how a router follows its changes."""
