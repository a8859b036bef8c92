//! Keys that can be recognised by how they look, whatever they are called.

use std::ops::Range;

use self::Alphabet::{Hex, Letters, Upper, Word};

/// The characters of a key after its prefix.
#[derive(Debug, Clone, Copy)]
enum Alphabet {
    /// Letters, digits, `-` and `_`.
    Word,
    /// Letters and digits.
    Letters,
    /// Capitals and digits.
    Upper,
    /// Hexadecimal digits.
    Hex,
}

impl Alphabet {
    fn has(self, byte: u8) -> bool {
        match self {
            Word => is_word(byte),
            Letters => byte.is_ascii_alphanumeric(),
            Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Hex => byte.is_ascii_hexdigit(),
        }
    }
}

/// How the keys of services begin, the characters that follow and how many there are at least. The prefixes are those
/// of the default rules of gitleaks 8 (as of 2025-10-01) that need no context, with services of models added. The
/// counts are lower than theirs: a shortened key is a secret too.
#[rustfmt::skip]
const PREFIXES: &[(&str, Alphabet, usize)] = &[
    ("A3T", Upper, 17), ("ABIA", Upper, 16), ("ACCA", Upper, 16), ("AKIA", Upper, 12), ("ASIA", Upper, 16),
    ("ABSK", Letters, 40), ("ABSKQmVkcm9ja0FQSUtleS", Letters, 12), ("AGE-SECRET-KEY-1", Upper, 12),
    ("AIza", Word, 12), ("AKCp", Letters, 40), ("AQVN", Word, 35), ("ATATT3", Word, 40), ("API-", Upper, 26),
    ("CLOJARS_", Letters, 30), ("EAAA", Word, 40), ("EAAC", Letters, 80), ("EAAM", Letters, 80), ("EZAK", Letters, 40),
    ("EZTK", Letters, 40), ("FLWPUBK_TEST-", Letters, 12), ("FLWSECK_TEST-", Letters, 12), ("GR1348941", Word, 12),
    ("HRKU-AA", Word, 30), ("LTAI", Letters, 20), ("NRAK-", Upper, 20), ("NRII-", Word, 20), ("NRJS-", Letters, 12),
    ("PMAK-", Word, 20), ("SK", Hex, 32), ("api_org_", Letters, 30), ("cmVmd", Letters, 59), ("dapi", Hex, 32),
    ("dnkey-", Word, 26), ("doo_v1_", Hex, 30), ("dop_v1_", Hex, 30), ("dor_v1_", Hex, 30), ("duffel_live_", Word, 30),
    ("duffel_test_", Word, 30), ("fio-u-", Word, 40), ("fm1a_", Word, 60), ("fm1r_", Word, 60), ("fm2_", Word, 60),
    ("fo1_", Word, 40), ("gho_", Letters, 12), ("ghp_", Letters, 12), ("ghr_", Letters, 12), ("ghs_", Letters, 12),
    ("ghu_", Letters, 12), ("github_pat_", Word, 12), ("glagent-", Word, 12), ("glc_", Letters, 30), ("glcbt-", Word, 12),
    ("gldt-", Word, 12), ("glffct-", Word, 12), ("glft-", Word, 12), ("glimt-", Word, 12), ("gloas-", Word, 12),
    ("glpat-", Word, 12), ("glptt-", Word, 12), ("glrt-", Word, 12), ("glsa_", Word, 30), ("glsoat-", Word, 12),
    ("gsk_", Letters, 30), ("hf_", Letters, 12), ("ico-", Letters, 30), ("lin_api_", Letters, 30), ("lin_oauth_", Letters, 30),
    ("npm_", Letters, 30), ("ntn_", Letters, 40), ("ops_eyJ", Word, 40), ("p8e-", Letters, 30), ("pk_live_", Letters, 12),
    ("pnu_", Letters, 30), ("pplx-", Letters, 40), ("pscale_oauth_", Word, 30), ("pscale_pw_", Word, 30),
    ("pscale_tkn_", Word, 30), ("pul-", Hex, 40), ("pypi-AgE", Word, 40), ("r8_", Letters, 37), ("rdme_", Letters, 60),
    ("rk_live_", Letters, 10), ("rk_prod_", Letters, 10), ("rk_test_", Letters, 10), ("rubygems_", Hex, 40),
    ("s-s4t2", Word, 60), ("sgp_", Word, 40), ("shippo_live_", Hex, 30), ("shippo_test_", Hex, 30), ("shpat_", Hex, 30),
    ("shpca_", Hex, 30), ("shppa_", Hex, 30), ("shpss_", Hex, 30), ("sk-", Word, 12), ("sk_live_", Letters, 10),
    ("sk_prod_", Letters, 10), ("sk_test_", Letters, 10), ("sm_aat_", Letters, 16), ("sm_pat_", Letters, 16),
    ("sm_sat_", Letters, 16), ("sntrys_", Word, 40), ("sntryu_", Hex, 40), ("sq0atp-", Word, 22), ("sq0csp-", Word, 22),
    ("tfp_", Word, 40), ("tk-us-", Word, 40), ("xai-", Letters, 40), ("xapp-", Word, 12), ("xkeysib-", Word, 40),
    ("xoxa-", Word, 8), ("xoxb-", Word, 12), ("xoxe-", Word, 12), ("xoxo-", Word, 12), ("xoxp-", Word, 12),
    ("xoxr-", Word, 8), ("xoxs-", Word, 12),
];

/// Keys of parts that a `.` separates: how they begin, and how many characters they have at least.
const DOTTED: [(&str, usize); 8] = [
    ("SG.", 40),
    ("dp.pt.", 40),
    ("dt0c01.", 60),
    ("hvb.", 60),
    ("hvs.", 40),
    ("t1.", 80),
    ("v1.0-", 100),
    ("xoxe.", 60),
];

/// Each part of a JSON Web Token has so many characters at least.
const TOKEN_PART: usize = 16;
/// The shortest key.
const MIN_KEY_CHARS: usize = 12;
/// How a block of a private key begins and ends.
const BLOCK_BEGIN: &[u8] = b"-----BEGIN";
const BLOCK_END: &[u8] = b"-----END";

/// First bytes of keys, one bit each.
const FIRST: u128 = first_bytes();

const fn first_bytes() -> u128 {
    let mut found = 1 << b'e'; // JSON Web Tokens
    let mut rest = PREFIXES;
    while let [(prefix, ..), after @ ..] = rest {
        if let [first, ..] = prefix.as_bytes() {
            found |= 1 << *first;
        }
        rest = after;
    }
    let mut rest = DOTTED.as_slice();
    while let [(prefix, _), after @ ..] = rest {
        if let [first, ..] = prefix.as_bytes() {
            found |= 1 << *first;
        }
        rest = after;
    }
    found
}

/// Whether a byte is part of a word that can be a key.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// What of the text must go because of the word in it.
pub(super) fn at_word(text: &[u8], word: Range<usize>) -> Option<Range<usize>> {
    let bytes = text.get(word.clone())?;
    let first = *bytes.first()?;
    if first == b'-' {
        return block(text, word);
    }
    if !first.is_ascii() || (FIRST >> first) & 1 == 0 {
        return None;
    }
    let is_key = |(prefix, alphabet, least): &(&str, Alphabet, usize)| {
        let rest = bytes.strip_prefix(prefix.as_bytes());
        rest.is_some_and(|rest| rest.len() >= *least && rest.iter().all(|b| alphabet.has(*b)))
    };
    if bytes.len() >= MIN_KEY_CHARS && PREFIXES.iter().any(is_key) {
        return Some(word);
    }
    dotted(text, word)
}

/// A key of several words that `.` separates.
fn dotted(text: &[u8], word: Range<usize>) -> Option<Range<usize>> {
    let rest = text.get(word.start..)?;
    // Before the key is measured: in a text such as `a.b.c.…` every word would measure all that follows.
    let may_be_key = rest.starts_with(b"eyJ")
        || DOTTED.iter().any(|(begin, _)| rest.starts_with(begin.as_bytes()));
    if !may_be_key {
        return None;
    }
    let length = rest.iter().position(|b| !is_word(*b) && *b != b'.').unwrap_or(rest.len());
    let whole = rest.get(..length)?;
    let is_known = |(prefix, least): &(&str, usize)| {
        whole.starts_with(prefix.as_bytes()) && whole.len() >= *least
    };
    let mut parts = whole.split(|byte| *byte == b'.');
    let mut is_part = |begin: &[u8]| {
        parts.next().is_some_and(|part| part.len() >= TOKEN_PART && part.starts_with(begin))
    };
    let is_token = is_part(b"eyJ") && is_part(b"eyJ") && is_part(b"");
    (is_token || DOTTED.iter().any(is_known)).then(|| word.start..word.start + length)
}

/// A private key between the lines that mark it, or to the end of the text if the second line is missing.
fn block(text: &[u8], word: Range<usize>) -> Option<Range<usize>> {
    let rest = text.get(word.start..)?;
    if !rest.starts_with(BLOCK_BEGIN) {
        return None;
    }
    let title = rest.get(..rest.len().min(64))?;
    title.windows(11).find(|part| *part == b"PRIVATE KEY")?;
    let end = rest.windows(BLOCK_END.len()).position(|part| part == BLOCK_END);
    let Some(end) = end else { return Some(word.start..text.len()) };
    // The last line ends with five dashes more.
    let tail = rest.get(end + BLOCK_END.len()..)?;
    let close = tail.windows(5).position(|part| part == b"-----").map_or(tail.len(), |at| at + 5);
    Some(word.start..word.start + end + BLOCK_END.len() + close)
}
