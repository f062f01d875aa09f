"""The way of bytes to a backend and back: connections that are kept and used again, requests, answers as they come."""
