"""What each page of the reference is made of."""
