"""Tests on one real cluster, which starts before the first and ends with the last of this folder."""
