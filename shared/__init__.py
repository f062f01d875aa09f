"""The vocabulary that every tier speaks; holds no tier's logic and imports no tier."""

__version__ = "0.1.0"
