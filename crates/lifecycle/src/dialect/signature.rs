//! What a function takes, and whether a call's arguments fit it.

use super::Language;
use super::recorder::FILLED_PARAMETERS;
use crate::request::Arguments;

/// What a function takes, without a leading parameter the harness fills.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one declaration")]
pub struct Signature {
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Whether it takes any further positional arguments (`*rest`).
    pub rest: bool,
    /// Whether it takes any further keyword arguments (`**options`).
    pub keyword_rest: bool,
    /// Whether a leading parameter (`self`, `ctx`, `context`) was left out.
    pub filled: bool,
}

/// One parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; empty for one that is taken apart where it is declared.
    pub name: String,
    /// How it can be given.
    pub kind: ParameterKind,
    /// Whether it has no default.
    pub required: bool,
}

/// How a parameter can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    /// By position only.
    Positional,
    /// By position or by name.
    Either,
    /// By name only.
    Keyword,
}

/// How a call's arguments fit a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// The function can be called with them.
    Fits,
    /// These required parameters get nothing.
    Missing(Vec<String>),
    /// Nothing takes some of them.
    Extra,
}

impl Signature {
    /// Whether a function of `language` can be called with these arguments.
    pub fn fit(&self, language: Language, arguments: &Arguments) -> Fit {
        let Arguments { args, kwargs } = arguments;
        let takes_keywords = self.keyword_rest || self.of(ParameterKind::Keyword).next().is_some();
        // Ruby passes keywords that no parameter takes as one more positional argument.
        let as_hash = language == Language::Ruby && !takes_keywords && !kwargs.is_empty();
        let given = args.len() + usize::from(as_hash);
        let positional: Vec<&Parameter> =
            self.parameters.iter().filter(|it| it.kind != ParameterKind::Keyword).collect();
        if self.filled && !self.rest && given > positional.len() {
            return Fit::Fits; // the leading parameter may take one
        }
        let named = |name: &str| !as_hash && kwargs.contains_key(name);
        let missing = self.missing(language, &positional, given, named);
        if !missing.is_empty() {
            return Fit::Missing(missing);
        }
        let free = positional.iter().skip(given).filter(|it| it.kind == ParameterKind::Either);
        let mut taken = free.copied().chain(self.of(ParameterKind::Keyword));
        let is_taken = |name: &String| taken.any(|it| it.name == *name);
        let extra = (given > positional.len() && !self.rest)
            || (!as_hash && !self.keyword_rest && !kwargs.keys().all(is_taken));
        if extra { Fit::Extra } else { Fit::Fits }
    }

    /// Required parameters that get nothing of `given` positional and the `named` arguments.
    fn missing(
        &self,
        language: Language,
        positional: &[&Parameter],
        given: usize,
        named: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let required = positional.iter().filter(|it| it.required);
        let mut missing: Vec<&Parameter> = match language {
            // Optional parameters are filled last, wherever they stand.
            Language::Ruby => required.skip(given).copied().collect(),
            Language::Python => {
                let late = positional.iter().skip(given).filter(|it| it.required);
                late.filter(|it| it.kind == ParameterKind::Positional || !named(&it.name))
                    .copied()
                    .collect()
            }
        };
        let keywords = self.of(ParameterKind::Keyword).filter(|it| it.required);
        missing.extend(keywords.filter(|it| !named(&it.name)));
        missing.into_iter().map(|it| it.name.clone()).collect()
    }

    /// The same without a leading parameter that the harness fills.
    pub(super) fn filled(mut self, may_be_filled: bool) -> Self {
        let leads = |it: &Parameter| {
            it.kind != ParameterKind::Keyword && FILLED_PARAMETERS.contains(&it.name.as_str())
        };
        if may_be_filled && self.parameters.first().is_some_and(leads) {
            self.parameters.remove(0);
            self.filled = true;
        }
        self
    }

    fn of(&self, kind: ParameterKind) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |it| it.kind == kind)
    }
}

impl std::fmt::Display for Signature {
    /// For people: `w, h, unit: optional`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |it: &Parameter| {
            let name = match it.kind {
                ParameterKind::Keyword => format!("{}:", it.name),
                ParameterKind::Positional | ParameterKind::Either => it.name.clone(),
            };
            if it.required { name } else { format!("[{name}]") }
        };
        let rest = self.rest.then(|| "*".to_owned());
        let keyword_rest = self.keyword_rest.then(|| "**".to_owned());
        let all: Vec<String> =
            self.parameters.iter().map(shown).chain(rest).chain(keyword_rest).collect();
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::dialect::inspect;

    fn check(language: Language, source: &str, args: &[Value], kwargs: Value, expected: &Fit) {
        let found = inspect(language, source).unwrap();
        let signature = found.function("f").and_then(|it| it.signature.as_ref()).unwrap();
        let Value::Object(kwargs) = kwargs else { panic!("keywords are an object") };
        let arguments = Arguments { args: args.to_vec(), kwargs };
        assert_eq!(&signature.fit(language, &arguments), expected, "{source}: {arguments}");
    }

    #[test]
    fn arguments_fit_python_functions_as_python_binds_them() {
        let one = [json!(1)];
        let two = [json!(1), json!(2)];
        let none = || Value::Object(Map::new());
        let missing = |name: &str| Fit::Missing(vec![name.to_owned()]);
        for (source, args, kwargs, expected) in [
            ("def f(w, h): return w * h", &two[..], none(), Fit::Fits),
            ("def f(w, h): return w * h", &one, none(), missing("h")),
            ("def f(w, h): return w * h", &one, json!({"h": 2}), Fit::Fits),
            ("def f(w, h): return w * h", &two, json!({"unit": "m"}), Fit::Extra),
            ("def f(w, h): return w * h", &one, json!({"unit": "m"}), missing("h")),
            ("def f(w, h=1): return w * h", &one, none(), Fit::Fits),
            ("def f(w): return w", &two, none(), Fit::Extra),
            ("def f(*all): return all", &two, none(), Fit::Fits),
            ("def f(w, *, unit): return w", &one, none(), missing("unit")),
            ("def f(w, *, unit=None): return w", &one, json!({"unit": 1}), Fit::Fits),
            ("def f(**options): return options", &[], json!({"a": 1}), Fit::Fits),
            ("def f(self, w): return w", &one, none(), Fit::Fits),
            ("def f(self, w): return w", &[], none(), missing("w")),
            ("def f(w, /): return w", &[], json!({"w": 1}), missing("w")),
            ("def f(w): return w", &one, json!({"w": 1}), Fit::Extra),
        ] {
            check(Language::Python, source, args, kwargs, &expected);
        }
    }

    #[test]
    fn arguments_fit_ruby_methods_as_ruby_binds_them() {
        let one = [json!(1)];
        let two = [json!(1), json!(2)];
        let none = || Value::Object(Map::new());
        let missing = |name: &str| Fit::Missing(vec![name.to_owned()]);
        for (source, args, kwargs, expected) in [
            ("def f(w, h) = w * h", &two[..], none(), Fit::Fits),
            ("def f(w, h) = w * h", &one, none(), missing("h")),
            ("def f(w, options) = w", &one, json!({"unit": "m"}), Fit::Fits),
            ("def f(w) = w", &one, json!({"unit": "m"}), Fit::Extra),
            ("def f(w, h = 1) = w * h", &one, none(), Fit::Fits),
            ("def f(w, unit:) = w", &one, none(), missing("unit")),
            ("def f(w, unit: 1) = w", &one, json!({"unit": 2}), Fit::Fits),
            ("def f(w, unit: 1) = w", &one, json!({"size": 2}), Fit::Extra),
            ("def f(w, **rest) = w", &one, json!({"size": 2}), Fit::Fits),
            ("def f(*all) = all", &two, none(), Fit::Fits),
            ("def f(a, b = 1, c) = a", &two, none(), Fit::Fits),
            ("def f(context, w) = w", &one, none(), Fit::Fits),
        ] {
            check(Language::Ruby, source, args, kwargs, &expected);
        }
    }
}
