//! Keys and values of the stable beginnings of prompts, kept on disk.
//!
//! A file is named for the model, the version of this engine and the tokens it was computed from. Its last bytes are
//! the digest of the others, so a damaged file is noticed and written anew. A cache that cannot be used only costs time,
//! so no failure of it is reported.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::kv::KvCache;

/// The version of the files. Raise it if the forward pass computes other numbers.
const VERSION: u32 = 1;
/// The ending of the files. Others in the folder are left alone.
const EXTENSION: &str = "kv";
/// Shorter beginnings are computed faster than they are worth a file.
const MIN_TOKENS: usize = 16;
/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// A folder of computed beginnings.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    folder: PathBuf,
    max_bytes: u64,
    model: [u8; DIGEST_BYTES],
}

impl PrefixCache {
    /// The cache of one model, which is known by the digest of its file.
    pub(crate) fn new(folder: &Path, max_bytes: u64, model: [u8; DIGEST_BYTES]) -> Self {
        Self { folder: folder.to_owned(), max_bytes, model }
    }

    /// Fills `cache` with what was computed for exactly these tokens.
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

    /// Keeps what `cache` holds for its tokens, if that is worth it, and drops the files that were not used for longest.
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
        // Another engine may write the same file, so each writes its own and the last rename counts.
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

    /// Removes the files that were not used for longest until the rest fits.
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
