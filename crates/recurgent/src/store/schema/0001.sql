-- What outlives a call. Times are RFC 3339, UTC; JSON is kept as text.
--
-- No table needs AUTOINCREMENT: an id only has to exceed those it is compared with.

PRAGMA application_id = 0x52435247; -- "RCRG"

-- What can be called: a method of a role, in a language, under a contract.
CREATE TABLE artifacts (
  id INTEGER PRIMARY KEY,
  role TEXT NOT NULL,
  method TEXT NOT NULL,
  language TEXT NOT NULL,
  contract_fingerprint TEXT NOT NULL,
  current INTEGER NOT NULL, -- the version that runs
  UNIQUE (role, method, language, contract_fingerprint)
) STRICT;

-- The programs it was, oldest first. The text comes last: counting must not have to step over it.
CREATE TABLE artifact_versions (
  artifact_id INTEGER NOT NULL REFERENCES artifacts (id) ON DELETE CASCADE,
  version INTEGER NOT NULL,
  checksum TEXT NOT NULL,
  successes INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  repairs INTEGER NOT NULL,
  cacheability TEXT NOT NULL,
  runtime_version TEXT NOT NULL,
  prompt_version TEXT NOT NULL,
  admitted_at TEXT NOT NULL,
  manifest TEXT NOT NULL,
  code TEXT NOT NULL,
  UNIQUE (artifact_id, version),
  UNIQUE (artifact_id, checksum)
) STRICT;

CREATE TABLE tools (
  name TEXT PRIMARY KEY NOT NULL,
  usage_count INTEGER NOT NULL,
  success_count INTEGER NOT NULL,
  failure_count INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  last_used_at TEXT NOT NULL,
  contract TEXT
) STRICT;

CREATE INDEX tools_by_usage ON tools (usage_count DESC, name);
CREATE INDEX tools_by_recency ON tools (last_used_at DESC);

CREATE TABLE tool_methods (
  tool TEXT NOT NULL REFERENCES tools (name) ON DELETE CASCADE,
  method TEXT NOT NULL,
  PRIMARY KEY (tool, method)
) STRICT, WITHOUT ROWID;

-- Whose memory and history: an agent of a session, by the session's name, or an agent object, by its own.
CREATE TABLE owners (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('session', 'instance')),
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  context_version INTEGER NOT NULL,
  history_count INTEGER NOT NULL,
  updated_at TEXT NOT NULL,
  UNIQUE (kind, name, role)
) STRICT;

-- The memory of a session's agent, a row per key.
CREATE TABLE context_entries (
  owner_id INTEGER NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  UNIQUE (owner_id, key)
) STRICT;

CREATE TABLE history (
  id INTEGER PRIMARY KEY,
  owner_id INTEGER NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  call_id TEXT NOT NULL,
  record TEXT NOT NULL
) STRICT;

CREATE INDEX history_by_owner ON history (owner_id);
CREATE INDEX history_by_call ON history (call_id);

-- Values to refer to later, laid end to end on an endless tape of which the last stretch is kept.
CREATE TABLE contents (
  id INTEGER PRIMARY KEY,
  owner_id INTEGER NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  reference TEXT NOT NULL UNIQUE,
  start INTEGER NOT NULL, -- where on the tape
  bytes INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  payload TEXT NOT NULL
) STRICT;

CREATE INDEX contents_by_owner ON contents (owner_id);

-- Facts about the store itself.
--   context_floor: the version a new session starts from; above every version a removed session reached,
--   so that who still holds one cannot mistake its successor for it.
CREATE TABLE meta (
  key TEXT PRIMARY KEY NOT NULL,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('context_floor', 0);
