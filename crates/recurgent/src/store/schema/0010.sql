-- How many programs agreed with a version, if several were written for its first call: {"candidates": 5, "agreeing": 4}.
ALTER TABLE artifact_versions ADD COLUMN agreement TEXT;
