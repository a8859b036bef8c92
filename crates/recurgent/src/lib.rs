//! **Acts.** The library people embed.
