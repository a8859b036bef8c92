-- The rejected attempt that a program was written because of; its message is in `failure`.
ALTER TABLE artifact_versions ADD COLUMN trigger_stage TEXT;
ALTER TABLE artifact_versions ADD COLUMN trigger_error_class TEXT;
ALTER TABLE artifact_versions ADD COLUMN trigger_attempt_id INTEGER;
