-- Adaptive pressure: how often second chances ran out. A row of its own, since what never worked has no artifact.
CREATE TABLE exhaustions (
  role TEXT NOT NULL,
  method TEXT NOT NULL,
  language TEXT NOT NULL,
  contract_fingerprint TEXT NOT NULL,
  guardrail INTEGER NOT NULL,
  outcome INTEGER NOT NULL,
  PRIMARY KEY (role, method, language, contract_fingerprint)
) STRICT, WITHOUT ROWID;
