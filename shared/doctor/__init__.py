"""`isthmus doctor`: what each tier needs of this machine, what is there, and what to do about the rest."""
