//! What tokens cost. Prices come from the user and are never guessed: they change, and a wrong sum is worse
//! than none.

use std::collections::BTreeMap;
use std::path::Path;

pub use lifecycle::spending::{Price, Pricing};

use super::ProviderFault;

/// Prices by model name; a name stands for every model whose name begins with it, the longest wins.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    any: Option<Price>,
    by_model: BTreeMap<String, Price>,
}

impl Prices {
    /// `any` applies to every model that no table names.
    pub fn new(any: Option<Price>) -> Self {
        Self { any, by_model: BTreeMap::new() }
    }

    /// Adds a table: TOML, `[model]` with `input`, `output` and `cached` in dollars per million tokens.
    pub fn read(mut self, path: &Path) -> Result<Self, ProviderFault> {
        let fault = |problem: String| ProviderFault::File {
            path: path.display().to_string(),
            problem: format!(
                "{problem}; a price table has [model] with input and output, in dollars per million tokens"
            ),
        };
        let text =
            crate::regular_file::read_regular(path).map_err(|error| fault(error.to_string()))?;
        self.by_model = toml::from_str(&text).map_err(|error| fault(error.to_string()))?;
        let is_price = |price: f64| price.is_finite() && price >= 0.0;
        let bad = self.by_model.iter().find(|(_, price)| {
            ![price.input, price.output, price.cached.unwrap_or(0.0)].into_iter().all(is_price)
        });
        match bad {
            Some((model, _)) => Err(fault(format!("the prices of {model:?} must be 0 or more"))),
            None => Ok(self),
        }
    }

    /// The price of a model.
    pub fn of(&self, model: &str) -> Option<Price> {
        let named = self.by_model.iter().filter(|(name, _)| model.starts_with(name.as_str()));
        named.max_by_key(|(name, _)| name.len()).map(|(_, price)| *price).or(self.any)
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::draft::Usage;

    use super::*;

    #[test]
    fn tokens_are_paid_by_kind_and_the_longest_name_wins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prices.toml");
        std::fs::write(&path, "[gpt]\ninput = 2.0\noutput = 8.0\ncached = 0.5\n[gpt-5-mini]\ninput = 0.25\noutput = 2\n")
            .unwrap();
        let prices = Prices::new(None).read(&path).unwrap();
        let usage = Usage {
            input_tokens: 1000,
            output_tokens: 100,
            cached_tokens: 400,
            ..Usage::default()
        };
        let cost = |model: &str| prices.of(model).map(|price| price.of(&usage).0);
        assert_eq!(cost("gpt-4.1"), Some(600 * 2000 + 400 * 500 + 100 * 8000));
        assert_eq!(cost("gpt-5-mini-2026"), Some(1000 * 250 + 100 * 2000));
        assert_eq!(cost("claude"), None);
        let writing = Usage { cache_written_tokens: 200, ..usage };
        let price = prices.of("gpt-4.1").unwrap();
        assert_eq!(price.of(&writing).0, 400 * 2000 + 200 * 2500 + 400 * 500 + 100 * 8000);
        // No more tokens can be written to a cache than were sent.
        let impossible = Usage { cache_written_tokens: 9000, ..usage };
        assert_eq!(price.of(&impossible).0, 600 * 2500 + 400 * 500 + 100 * 8000);
        std::fs::write(&path, "[gpt]\ninput = -2.0\noutput = 8.0\n").unwrap();
        let fault = Prices::new(None).read(&path).unwrap_err().to_string();
        assert!(fault.contains("\"gpt\" must be 0 or more"), "{fault}");
    }
}
