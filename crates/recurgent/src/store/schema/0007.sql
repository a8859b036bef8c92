-- What people say about programs, and which version each recorded call belongs to.

-- Made anew, so that what is counted stays before the text.
CREATE TABLE versions (
  artifact_id INTEGER NOT NULL REFERENCES artifacts (id) ON DELETE CASCADE,
  version INTEGER NOT NULL,
  checksum TEXT NOT NULL,
  standing TEXT NOT NULL,
  recent TEXT NOT NULL, -- the results of the last calls, a letter each
  sessions TEXT NOT NULL, -- digests of the sessions it was called in, at most a few
  shapes TEXT NOT NULL DEFAULT '', -- digests of the argument shapes it was accepted with, at most a few
  successes INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  repairs INTEGER NOT NULL,
  cacheability TEXT NOT NULL,
  runtime_version TEXT NOT NULL,
  prompt_version TEXT NOT NULL,
  admitted_at TEXT NOT NULL,
  author TEXT NOT NULL DEFAULT 'model', -- or 'person'
  rejected INTEGER NOT NULL DEFAULT 0, -- a person took it out of service
  trigger_reason TEXT NOT NULL, -- why it was written
  parent TEXT, -- the checksum of the version it was to replace
  failure TEXT, -- what went wrong with that
  pure INTEGER NOT NULL,
  state_keys TEXT NOT NULL,
  failing_case TEXT, -- the recorded call it did not reproduce
  manifest TEXT NOT NULL,
  code TEXT NOT NULL,
  UNIQUE (artifact_id, version),
  UNIQUE (artifact_id, checksum)
) STRICT;

INSERT INTO versions (
  artifact_id, version, checksum, standing, recent, sessions, successes, failures, repairs, cacheability,
  runtime_version, prompt_version, admitted_at, trigger_reason, parent, failure, pure, state_keys, failing_case,
  manifest, code)
SELECT artifact_id, version, checksum, standing, recent, sessions, successes, failures, repairs, cacheability,
       runtime_version, prompt_version, admitted_at, trigger_reason, parent, failure, pure, state_keys, failing_case,
       manifest, code
FROM artifact_versions;
DROP TABLE artifact_versions;
ALTER TABLE versions RENAME TO artifact_versions;

-- The version that was called; calls recorded before this column existed have none.
ALTER TABLE corpus ADD COLUMN checksum TEXT;

-- Calls whose right or wrong answer a person gave. They belong to a method, whatever its language and contract.
CREATE TABLE examples (
  role TEXT NOT NULL,
  method TEXT NOT NULL,
  inputs_digest TEXT NOT NULL,
  taught_at TEXT NOT NULL,
  example TEXT NOT NULL,
  PRIMARY KEY (role, method, inputs_digest)
) STRICT, WITHOUT ROWID;

-- Programs that a person rejected, and why; the last few of each method.
CREATE TABLE rejections (
  id INTEGER PRIMARY KEY,
  role TEXT NOT NULL,
  method TEXT NOT NULL,
  language TEXT NOT NULL,
  checksum TEXT NOT NULL,
  because TEXT NOT NULL,
  rejected_at TEXT NOT NULL
) STRICT;

CREATE INDEX rejections_by_method ON rejections (role, method, id);

-- How a tool's method was called, as the runtime it was imported from described it.
ALTER TABLE tool_methods ADD COLUMN signature TEXT;

-- A tool is used when it is called. Earlier versions counted how often it was asked for.
UPDATE tools SET usage_count = max(usage_count, success_count + failure_count);
ALTER TABLE early_calls ADD COLUMN calls INTEGER NOT NULL DEFAULT 0;
UPDATE early_calls SET calls = successes + failures;
