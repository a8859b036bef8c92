-- How programs prove themselves: versions with a standing, the calls they are held to, what was decided.

ALTER TABLE artifacts ADD COLUMN generations INTEGER NOT NULL DEFAULT 0; -- programs ever made; the newest version
ALTER TABLE artifacts ADD COLUMN challenger INTEGER; -- the version that waits for its trial
ALTER TABLE artifacts ADD COLUMN cases INTEGER NOT NULL DEFAULT 0; -- its rows in `corpus`
ALTER TABLE artifacts ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0; -- the current version is never replaced
UPDATE artifacts SET generations = coalesce(
  (SELECT max(version) FROM artifact_versions WHERE artifact_id = artifacts.id), current);

-- Made anew, so that what is counted stays before the text.
CREATE TABLE versions (
  artifact_id INTEGER NOT NULL REFERENCES artifacts (id) ON DELETE CASCADE,
  version INTEGER NOT NULL,
  checksum TEXT NOT NULL,
  standing TEXT NOT NULL,
  recent TEXT NOT NULL, -- what came of the last calls, a letter each
  sessions TEXT NOT NULL, -- digests of the sessions it was called in, at most a few
  successes INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  repairs INTEGER NOT NULL,
  cacheability TEXT NOT NULL,
  runtime_version TEXT NOT NULL,
  prompt_version TEXT NOT NULL,
  admitted_at TEXT NOT NULL,
  trigger_reason TEXT NOT NULL, -- why it was written
  parent TEXT, -- the checksum of what it was to replace
  failure TEXT, -- what went wrong with that
  pure INTEGER NOT NULL,
  state_keys TEXT NOT NULL,
  failing_case TEXT, -- the recorded call it did not reproduce
  manifest TEXT NOT NULL,
  code TEXT NOT NULL,
  UNIQUE (artifact_id, version),
  UNIQUE (artifact_id, checksum)
) STRICT;

INSERT INTO versions
SELECT artifact_id, version, checksum, 'probation', '', '', successes, failures, repairs, cacheability,
       runtime_version, prompt_version, admitted_at, 'fresh', NULL, NULL, 0, '{"reads":[],"writes":[]}', NULL,
       manifest, code
FROM artifact_versions;
DROP TABLE artifact_versions;
ALTER TABLE versions RENAME TO artifact_versions;

-- Accepted calls that later versions of an artifact are held to.
CREATE TABLE corpus (
  artifact_id INTEGER NOT NULL REFERENCES artifacts (id) ON DELETE CASCADE,
  inputs_digest TEXT NOT NULL,
  recorded_at TEXT NOT NULL,
  observed TEXT NOT NULL,
  inputs TEXT NOT NULL,
  PRIMARY KEY (artifact_id, inputs_digest)
) STRICT, WITHOUT ROWID;

-- Changes of standing, and why.
CREATE TABLE decisions (
  id INTEGER PRIMARY KEY,
  artifact_id INTEGER NOT NULL REFERENCES artifacts (id) ON DELETE CASCADE,
  checksum TEXT NOT NULL,
  decided_at TEXT NOT NULL,
  decision TEXT NOT NULL
) STRICT;

CREATE INDEX decisions_by_artifact ON decisions (artifact_id, id);

-- Calls programs made of roles that are no tools (yet): a tool's first ones are committed before the call that forges it.
CREATE TABLE early_calls (
  role TEXT PRIMARY KEY NOT NULL,
  successes INTEGER NOT NULL,
  failures INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
