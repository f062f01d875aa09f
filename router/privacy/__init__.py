"""What a body holds that must not travel, and the permit without which nothing travels."""
