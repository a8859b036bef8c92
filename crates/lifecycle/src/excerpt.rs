//! How a text is shown where all of it would be too much.

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
