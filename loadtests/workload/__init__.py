"""What users ask: seeded requests with stated length distributions, and the canaries in some of them."""
