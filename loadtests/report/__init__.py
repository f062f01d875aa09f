"""Reports of a load test: for people one HTML page, for pipelines JUnit, for a terminal a table."""
