-- The packages a session's agent holds since its last success, a row per language its programs are written in.
CREATE TABLE manifests (
  owner_id INTEGER NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  language TEXT NOT NULL,
  manifest TEXT NOT NULL,
  PRIMARY KEY (owner_id, language)
) STRICT, WITHOUT ROWID;
