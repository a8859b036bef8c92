//! A cache on disk for the attention keys and values of prompt prefixes that many prompts share.
//!
//! A file is named for the model, the version of this engine and the tokens it was computed from. Its last bytes are
//! the digest of the others, so a damaged file is noticed and written anew. Without the cache an answer only takes longer,
//! so its failures are not reported.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::kv::KvCache;

/// The version of the files. Raise it when the forward pass computes other numbers than before.
const VERSION: u32 = 1;
/// The ending of the files. Others in the folder are left alone.
const EXTENSION: &str = "kv";
/// Fewest tokens of a prefix that is saved: a shorter one is computed quickly.
const MIN_TOKENS: usize = 16;
/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// A folder of saved prefixes.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    folder: PathBuf,
    max_bytes: u64,
    model: [u8; DIGEST_BYTES],
}

impl PrefixCache {
    /// The cache of one model, identified by the digest of its file.
    pub(crate) fn new(folder: &Path, max_bytes: u64, model: [u8; DIGEST_BYTES]) -> Self {
        Self { folder: folder.to_owned(), max_bytes, model }
    }

    /// Fills `cache` with the saved keys and values of exactly these tokens. Returns whether there were any.
    pub(crate) fn load(&self, tokens: &[u32], cache: &mut KvCache) -> bool {
        let path = self.path(tokens);
        let loaded = Self::try_load(&path, tokens, cache);
        match loaded {
            Ok(true) => {
                let touched = File::options().append(true).open(&path);
                drop(touched.and_then(|file| file.set_modified(SystemTime::now())));
                true
            }
            Ok(false) | Err(_) => false,
        }
    }

    /// Saves `cache` if it has enough tokens, and removes the least recently used files beyond the limit.
    pub(crate) fn save(&self, cache: &KvCache) {
        if cache.len() >= MIN_TOKENS {
            drop(self.try_save(cache).and_then(|()| self.evict()));
        }
    }

    fn path(&self, tokens: &[u32]) -> PathBuf {
        let mut digest = Sha256::new();
        digest.update(VERSION.to_le_bytes());
        digest.update(self.model);
        for token in tokens {
            digest.update(token.to_le_bytes());
        }
        let name: String = lifecycle::program::hex(&digest.finalize());
        self.folder.join(name).with_extension(EXTENSION)
    }

    fn try_load(path: &Path, tokens: &[u32], cache: &mut KvCache) -> io::Result<bool> {
        let mut file = File::open(path)?;
        let expected = cache.saved_bytes(tokens.len()) + DIGEST_BYTES;
        if file.metadata()?.len() != expected as u64 {
            return Ok(false);
        }
        let mut bytes = Vec::with_capacity(expected);
        file.read_to_end(&mut bytes)?;
        let Some((numbers, digest)) = bytes.split_last_chunk::<DIGEST_BYTES>() else {
            return Ok(false);
        };
        Ok(Sha256::digest(numbers).as_slice() == digest && cache.load(tokens, numbers))
    }

    fn try_save(&self, cache: &KvCache) -> io::Result<()> {
        let numbers = cache.save();
        if (numbers.len() + DIGEST_BYTES) as u64 > self.max_bytes {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let path = self.path(cache.tokens());
        // Another engine may write the same file, so each writes a file of its own and renames it.
        let unfinished = path.with_extension(format!("{}.unfinished", std::process::id()));
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(&numbers)?;
            file.write_all(&Sha256::digest(&numbers))
        });
        let renamed = written.and_then(|()| fs::rename(&unfinished, &path));
        if renamed.is_err() {
            drop(fs::remove_file(&unfinished));
        }
        renamed
    }

    /// Removes the least recently used files until the others fit.
    fn evict(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if entry.path().extension().is_some_and(|it| it == EXTENSION) && metadata.is_file() {
                files.push((metadata.modified()?, entry.path(), metadata.len()));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
        for (_, path, bytes) in files {
            if total <= self.max_bytes {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }
}
