//! What a function takes, and whether a call's arguments fit it.

use serde_json::{Map, Value};

use super::Language;
use super::head::parameter_name;
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
    /// By position, or by keywords that no other parameter takes: Ruby's last `options = {}`.
    Options,
    /// By position or by name.
    Either,
    /// By name only.
    Keyword,
}

/// Whether a call's arguments match a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentMatch {
    /// The function can be called with them.
    Matches,
    /// These required parameters get nothing.
    Missing(Vec<String>),
    /// Nothing takes some of them.
    Extra,
}

impl Signature {
    /// Whether a function of `language` can be called with these arguments.
    pub fn match_arguments(&self, language: Language, arguments: &Arguments) -> ArgumentMatch {
        let Arguments { args, kwargs } = arguments;
        let kwargs = &self.bound_keywords(language, args.len(), kwargs);
        let positional: Vec<&Parameter> =
            self.parameters.iter().filter(|it| it.kind != ParameterKind::Keyword).collect();
        // Python binds names itself; Ruby's harness gives named positional parameters their place.
        let placed = match language {
            Language::Python => &[],
            Language::Ruby => placed(positional.get(args.len()..).unwrap_or_default(), kwargs),
        };
        let kwargs: Vec<&String> =
            kwargs.iter().filter(|name| placed.iter().all(|it| it.name != **name)).collect();
        let given = args.len() + placed.len();
        if self.filled && !self.rest && given > positional.len() {
            return ArgumentMatch::Matches; // the leading parameter may take one
        }
        let named = |name: &str| kwargs.iter().any(|given| *given == name);
        let missing = self.missing(language, &positional, given, named);
        if !missing.is_empty() {
            return ArgumentMatch::Missing(missing);
        }
        let is_options = positional.get(given).is_some_and(|it| it.kind == ParameterKind::Options);
        let free = positional.iter().skip(given).filter(|it| it.kind == ParameterKind::Either);
        let mut taken = free.copied().chain(self.of(ParameterKind::Keyword));
        let is_taken = |name: &&String| taken.any(|it| it.name == **name);
        let extra = (given > positional.len() && !self.rest)
            || (!self.keyword_rest && !is_options && !kwargs.iter().all(is_taken));
        if extra { ArgumentMatch::Extra } else { ArgumentMatch::Matches }
    }

    /// The keywords of a call by the names of the parameters that take them, as the harnesses bind them: `from` reaches
    /// `from_`, and `from_unit` if nothing else could be meant.
    fn bound_keywords(
        &self,
        language: Language,
        placed: usize,
        kwargs: &Map<String, Value>,
    ) -> Vec<String> {
        if kwargs.is_empty() {
            return Vec::new();
        }
        let by_place = self.parameters.iter().filter(|it| it.kind != ParameterKind::Keyword);
        let late = by_place
            .skip(placed)
            .filter(|it| language == Language::Ruby || it.kind != ParameterKind::Positional);
        let free: Vec<&str> =
            late.chain(self.of(ParameterKind::Keyword)).map(|it| it.name.as_str()).collect();
        let is_free = |name: &str| free.contains(&name);
        let mapped = |name: &String| {
            let parameter = parameter_name(language, name);
            let is_it = !is_free(name) && is_free(&parameter);
            if is_it { parameter.into_owned() } else { name.clone() }
        };
        let names: Vec<String> = kwargs.keys().map(mapped).collect();
        if self.keyword_rest {
            return names;
        }
        let unbound: Vec<&str> =
            free.iter().copied().filter(|it| !names.iter().any(|name| name == it)).collect();
        let left: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !is_free(name)).collect();
        let akin = |name: &str| only(unbound.iter().copied().filter(|it| begins(name, it)));
        let is_only = |parameter: &str| left.iter().filter(|it| begins(it, parameter)).count() == 1;
        let bound = |name: &String| {
            let parameter = akin(name).filter(|it| !is_free(name) && is_only(it));
            parameter.map_or_else(|| name.clone(), str::to_owned)
        };
        names.iter().map(bound).collect()
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
            Language::Ruby => required.skip(given).filter(|it| !named(&it.name)).copied().collect(),
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

/// The leading ones of `free` positional parameters that are given by name.
fn placed<'a, 'b>(free: &'a [&'b Parameter], kwargs: &[String]) -> &'a [&'b Parameter] {
    let count = free.iter().take_while(|it| kwargs.contains(&it.name)).count();
    free.split_at(count).0
}

/// Whether one of both begins with the other and `_`: `from` and `from_unit`.
fn begins(name: &str, parameter: &str) -> bool {
    let (name, parameter) = (name.trim_end_matches('_'), parameter.trim_end_matches('_'));
    let extends = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.starts_with('_'))
    };
    extends(parameter, name) || extends(name, parameter)
}

/// The only one, if there is just one.
fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    found.next().filter(|_| found.next().is_none())
}

impl std::fmt::Display for Signature {
    /// For people: `w, h, unit: optional`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |it: &Parameter| {
            let name = match it.kind {
                ParameterKind::Keyword => format!("{}:", it.name),
                ParameterKind::Positional | ParameterKind::Options | ParameterKind::Either => {
                    it.name.clone()
                }
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
    use serde_json::json;

    use super::*;
    use crate::dialect::inspect;

    fn check(
        language: Language,
        source: &str,
        args: &[Value],
        kwargs: Value,
        expected: &ArgumentMatch,
    ) {
        let found = inspect(language, source).unwrap();
        let signature = found.function(language, "f").and_then(|it| it.signature.as_ref()).unwrap();
        let Value::Object(kwargs) = kwargs else { panic!("keywords are an object") };
        let arguments = Arguments { args: args.to_vec(), kwargs };
        assert_eq!(
            &signature.match_arguments(language, &arguments),
            expected,
            "{source}: {arguments}"
        );
    }

    fn units() -> Value {
        json!({"from": "celsius", "to": "fahrenheit"})
    }

    fn missing_all(names: &[&str]) -> ArgumentMatch {
        ArgumentMatch::Missing(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn arguments_fit_python_functions_as_python_binds_them() {
        let one = [json!(1)];
        let two = [json!(1), json!(2)];
        let none = || Value::Object(Map::new());
        let missing = |name: &str| ArgumentMatch::Missing(vec![name.to_owned()]);
        for (source, args, kwargs, expected) in [
            ("def f(w, h): return w * h", &two[..], none(), ArgumentMatch::Matches),
            ("def f(w, h): return w * h", &one, none(), missing("h")),
            ("def f(w, h): return w * h", &one, json!({"h": 2}), ArgumentMatch::Matches),
            ("def f(w, h): return w * h", &two, json!({"unit": "m"}), ArgumentMatch::Extra),
            ("def f(w, h): return w * h", &one, json!({"unit": "m"}), missing("h")),
            ("def f(w, h=1): return w * h", &one, none(), ArgumentMatch::Matches),
            ("def f(w): return w", &two, none(), ArgumentMatch::Extra),
            ("def f(*all): return all", &two, none(), ArgumentMatch::Matches),
            ("def f(w, *, unit): return w", &one, none(), missing("unit")),
            ("def f(w, *, unit=None): return w", &one, json!({"unit": 1}), ArgumentMatch::Matches),
            ("def f(**options): return options", &[], json!({"a": 1}), ArgumentMatch::Matches),
            ("def f(self, w): return w", &one, none(), ArgumentMatch::Matches),
            ("def f(self, w): return w", &[], none(), missing("w")),
            ("def f(w, /): return w", &[], json!({"w": 1}), missing("w")),
            ("def f(w): return w", &one, json!({"w": 1}), ArgumentMatch::Extra),
            ("def f(w, from_, to): return w", &one, units(), ArgumentMatch::Matches),
            ("def f(w, from_unit, to_unit): return w", &one, units(), ArgumentMatch::Matches),
            (
                "def f(w, from_a, from_b): return w",
                &one,
                units(),
                missing_all(&["from_a", "from_b"]),
            ),
            ("def f(w, **units): return w", &one, units(), ArgumentMatch::Matches),
        ] {
            check(Language::Python, source, args, kwargs, &expected);
        }
    }

    #[test]
    fn arguments_fit_ruby_methods_as_ruby_binds_them() {
        let one = [json!(1)];
        let two = [json!(1), json!(2)];
        let none = || Value::Object(Map::new());
        let missing = |name: &str| ArgumentMatch::Missing(vec![name.to_owned()]);
        for (source, args, kwargs, expected) in [
            ("def f(w, h) = w * h", &two[..], none(), ArgumentMatch::Matches),
            ("def f(w, h) = w * h", &one, none(), missing("h")),
            ("def f(w, options) = w", &one, json!({"unit": "m"}), missing("options")),
            ("def f(w, o = {}) = w", &one, json!({"unit": "m"}), ArgumentMatch::Matches),
            ("def f(w, o = {}) = w", &[], json!({"w": 1, "unit": "m"}), ArgumentMatch::Matches),
            ("def f(w, o = {}) = w", &[], json!({"unit": "m"}), missing("w")),
            ("def f(w, h = 1, o = {}) = w", &one, json!({"unit": "m"}), ArgumentMatch::Extra),
            ("def f(w, h = 1) = w", &one, json!({"hh": 2}), ArgumentMatch::Extra),
            ("def f(w, h = 1) = w", &[], json!({"ww": 2}), missing("w")),
            ("def f(options) = options", &[], json!({"a": 1}), missing("options")),
            ("def f(*all) = all", &one, json!({"a": 1}), ArgumentMatch::Extra),
            ("def f(w, h = 1, u = 2) = w", &[], json!({"w": 1, "u": 2}), ArgumentMatch::Extra),
            ("def f(w, h, u) = w", &[], json!({"w": 1, "u": 2}), missing("h")),
            ("def f(w, h) = w * h", &[], json!({"h": 1, "w": 2}), ArgumentMatch::Matches),
            ("def f(w, h) = w * h", &one, json!({"h": 1}), ArgumentMatch::Matches),
            ("def f(w, h) = w * h", &one, json!({"w": 1}), missing("h")),
            ("def f(w, h) = w * h", &[], json!({"w": 1}), missing("h")),
            (
                "def f(w, h, unit: 1) = w * h",
                &one,
                json!({"h": 1, "unit": 2}),
                ArgumentMatch::Matches,
            ),
            (
                "def f(w, h, unit: 1) = w * h",
                &one,
                json!({"h": 1, "size": 2}),
                ArgumentMatch::Extra,
            ),
            ("def f(w) = w", &one, json!({"unit": "m"}), ArgumentMatch::Extra),
            ("def f(w, h = 1) = w * h", &one, none(), ArgumentMatch::Matches),
            ("def f(w, unit:) = w", &one, none(), missing("unit")),
            ("def f(w, unit: 1) = w", &one, json!({"unit": 2}), ArgumentMatch::Matches),
            ("def f(w, unit: 1) = w", &one, json!({"size": 2}), ArgumentMatch::Extra),
            ("def f(w, **rest) = w", &one, json!({"size": 2}), ArgumentMatch::Matches),
            ("def f(*all) = all", &two, none(), ArgumentMatch::Matches),
            ("def f(a, b = 1, c) = a", &two, none(), ArgumentMatch::Matches),
            ("def f(context, w) = w", &one, none(), ArgumentMatch::Matches),
            ("def f(w, from:, to:) = w", &one, units(), ArgumentMatch::Matches),
            ("def f(w, from_unit, to_unit) = w", &one, units(), ArgumentMatch::Matches),
            ("def f(w, end_:) = w", &one, json!({"end": 1}), ArgumentMatch::Matches),
        ] {
            check(Language::Ruby, source, args, kwargs, &expected);
        }
    }
}
