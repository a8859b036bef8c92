//! How a text is shown where all of it would be too much, and how a number of things is said.

use std::fmt::Display;

/// The text, or its first characters and a mark that there is more.
///
/// ```
/// # use lifecycle::excerpt::shortened;
/// assert_eq!(shortened("café", 4), "café");
/// assert_eq!(shortened("cafés", 4), "café…");
/// ```
pub fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// A number of things.
///
/// ```
/// # use lifecycle::excerpt::counted;
/// assert_eq!(counted(1, "call"), "1 call");
/// assert_eq!(counted(2_u64, "call"), "2 calls");
/// ```
pub fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, unit: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
