//! Files that cannot be opened give typed faults, never a panic.

use embedded::{Engine, EngineFault, EngineOptions};

use crate::tiny::{Entry, TinyFile};

#[track_caller]
fn open(bytes: &[u8]) -> Result<Engine, EngineFault> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    std::fs::write(&file, bytes).unwrap();
    Engine::open(&file, &EngineOptions::default())
}

#[track_caller]
fn check_damaged(bytes: &[u8], expected: &str) {
    let fault = open(bytes).unwrap_err();
    assert!(matches!(fault, EngineFault::Damaged { .. }), "{fault}");
    assert!(fault.to_string().contains(expected), "{fault}");
}

#[test]
fn a_whole_file_opens() {
    open(&TinyFile::random(false).bytes()).unwrap();
    open(&TinyFile::random(true).bytes()).unwrap();
}

#[test]
fn a_missing_file_or_a_folder_is_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("none.gguf"), folder.path().to_owned()] {
        let fault = Engine::open(&path, &EngineOptions::default()).unwrap_err();
        assert!(matches!(fault, EngineFault::Unreadable { .. }), "{fault}");
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_damaged() {
    let bytes = TinyFile::random(false).bytes();
    let header = bytes.len()
        - TinyFile::random(false).tensors.iter().map(|it| it.bytes.len()).sum::<usize>();
    let places = (0..64).chain((64..header).step_by(97)).chain((header..bytes.len()).step_by(5003));
    for length in places.chain([bytes.len() - 1]) {
        let fault = open(&bytes[..length]).unwrap_err();
        let is_typed =
            matches!(fault, EngineFault::Damaged { .. } | EngineFault::Unreadable { .. });
        assert!(is_typed, "{length}: {fault}");
    }
}

#[test]
fn no_changed_byte_of_the_header_panics() {
    let whole = TinyFile::random(false).bytes();
    for place in (0..1024).chain((1024..8192).step_by(13)) {
        for change in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] ^= change;
            drop(open(&bytes)); // It may still be a model, but must not panic.
        }
    }
}

#[test]
fn another_magic_number_is_damage() {
    let mut bytes = TinyFile::random(false).bytes();
    bytes[..4].copy_from_slice(b"GGML");
    check_damaged(&bytes, "does not start with GGUF");
}

#[test]
fn absurd_sizes_are_damage() {
    let rows = [
        ("qwen2.block_count", 4_000_000_000, "qwen2.block_count"),
        ("qwen2.embedding_length", 0, "qwen2.embedding_length"),
        ("qwen2.embedding_length", 4_294_967_288, "qwen2.embedding_length"),
        ("qwen2.attention.head_count", 7, "heads"),
        ("qwen2.attention.head_count_kv", 9, "head_count_kv"),
        ("qwen2.feed_forward_length", 512, "ffn_gate"),
        ("tokenizer.ggml.eos_token_id", 100_000, "token 100000"),
    ];
    for (key, value, expected) in rows {
        let mut file = TinyFile::random(false);
        file.set(key, Entry::Integer(value));
        check_damaged(&file.bytes(), expected);
    }
}

#[test]
fn huge_counts_cost_nothing() {
    let mut bytes = TinyFile::random(false).bytes();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    check_damaged(&bytes, "tensors");
    let mut file = TinyFile::random(false);
    file.tensors[0].dimensions = vec![u64::MAX / 2, 8];
    check_damaged(&file.bytes(), "attn_q");
}

#[test]
fn a_missing_tensor_is_damage() {
    let mut file = TinyFile::random(false);
    file.tensors.retain(|tensor| tensor.name != "output_norm.weight");
    check_damaged(&file.bytes(), "output_norm.weight is missing");
}

#[test]
fn other_architectures_and_formats_are_unsupported() {
    let mut llama = TinyFile::random(false);
    llama.set("general.architecture", Entry::Text("llama"));
    let mut sentencepiece = TinyFile::random(false);
    sentencepiece.set("tokenizer.ggml.model", Entry::Text("llama"));
    let mut format = TinyFile::random(false);
    format.tensors[0].format = 99;
    for (file, expected) in [(llama, "llama"), (sentencepiece, "tokenizer"), (format, "format 99")]
    {
        let fault = open(&file.bytes()).unwrap_err();
        assert!(matches!(fault, EngineFault::Unsupported { .. }), "{fault}");
        assert!(fault.to_string().contains(expected), "{fault}");
    }
}
