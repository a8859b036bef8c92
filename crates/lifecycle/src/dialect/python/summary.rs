//! Classifies a Python expression as an [`Operand`].

use ruff_python_ast::{Arguments, BoolOp, Expr, ExprCall, Keyword, Number, UnaryOp};
use serde_json::Value;

use super::super::operand::{agent, makes_agent};
use super::super::{Argument, MAX_SUMMARY_LEVELS, Operand};
use super::Reader;

/// Names of a mapping's own methods, which are not its keys.
pub(super) fn is_map_method(name: &str) -> bool {
    matches!(
        name,
        "get"
            | "setdefault"
            | "pop"
            | "popitem"
            | "update"
            | "keys"
            | "values"
            | "items"
            | "copy"
            | "clear"
    )
}

impl Reader<'_> {
    pub(super) fn summary(&self, expression: &Expr) -> Operand {
        let level = self.level.get();
        if level == MAX_SUMMARY_LEVELS {
            return Operand::Unknown;
        }
        self.level.set(level + 1);
        let operand = self.summarise(expression);
        self.level.set(level);
        operand
    }

    fn summarise(&self, expression: &Expr) -> Operand {
        if let Some(value) = constant(expression) {
            return Operand::from(value);
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "ruff's expressions; the rest is unknown"
        )]
        match expression {
            Expr::Name(node) => self.recorder.variable(&node.id),
            Expr::Attribute(node) => match self.summary(&node.value) {
                Operand::Path(path) => Operand::Path(format!("{path}.{}", node.attr)),
                object => object.item(Some(&Value::from(node.attr.as_str()))),
            },
            Expr::Subscript(node) => self.summary(&node.value).item(constant(&node.slice).as_ref()),
            Expr::Call(node) => self.call_summary(node),
            Expr::Lambda(_) => Operand::Function,
            Expr::Await(node) => self.summary(&node.value),
            Expr::Named(node) => self.summary(&node.value),
            Expr::BoolOp(node) if node.op == BoolOp::Or => {
                let Some((wanted, others)) = node.values.split_first() else {
                    return Operand::Unknown;
                };
                let found = self.summary(wanted);
                let otherwise =
                    others.iter().map(|value| self.with_fallback(wanted, &found, value));
                let otherwise: Vec<_> = otherwise.collect();
                Operand::one_of(std::iter::once(found).chain(otherwise).collect())
            }
            Expr::BoolOp(node) => {
                Operand::one_of(node.values.iter().map(|value| self.summary(value)).collect())
            }
            Expr::If(node) if same_name(&node.test, &node.body) => {
                let found = self.summary(&node.body);
                let otherwise = self.with_fallback(&node.body, &found, &node.orelse);
                Operand::one_of(vec![found, otherwise])
            }
            Expr::If(node) => {
                Operand::one_of(vec![self.summary(&node.body), self.summary(&node.orelse)])
            }
            Expr::List(node) => self.list(&node.elts),
            Expr::Tuple(node) => self.list(&node.elts),
            Expr::Set(node) => self.list(&node.elts),
            Expr::Dict(node) => {
                let keys = node.items.iter().map(|item| constant(item.key.as_ref()?)).collect();
                Operand::map(
                    keys,
                    node.items.iter().map(|item| self.summary(&item.value)).collect(),
                )
            }
            _ => Operand::Unknown,
        }
    }

    /// The value of `wanted or value`, `found` being what `wanted` is. A default for an input, or for what memory has, is a default; for anything else
    /// it stands in for data.
    fn with_fallback(&self, wanted: &Expr, found: &Operand, value: &Expr) -> Operand {
        let value = self.summary(value);
        let input = root(wanted).is_some_and(|name| self.recorder.is_input(name));
        let is_default = input || self.recorder.is_remembered(found);
        if is_default { value } else { value.into_fallback() }
    }

    fn list(&self, members: &[Expr]) -> Operand {
        Operand::list(members.iter().map(|member| self.summary(member)).collect())
    }

    fn call_summary(&self, node: &ExprCall) -> Operand {
        if let Some(module) = self.imported_by_call(node) {
            return Operand::Path(module);
        }
        let given = |index| node.arguments.args.get(index).map(|given| self.summary(given));
        if let Expr::Name(function) = &*node.func {
            let name = function.id.as_str();
            return match self.recorder.bound(name).map(|bound| &**bound) {
                None if makes_agent(None, name) => agent(given(0).as_ref()),
                None if name == "runtime_context" => Operand::Context,
                None if name == "getattr" => self.getattr(node),
                None => self.built_in(name, node),
                Some(Operand::Path(path)) if path.ends_with("partial") => Operand::Function,
                Some(Operand::Path(path)) if path.ends_with("MethodType") => Operand::Function,
                Some(Operand::Path(path)) => Operand::Instance(Some(path.as_str().into())),
                _ => Operand::Unknown,
            };
        }
        let Expr::Attribute(function) = &*node.func else { return Operand::Unknown };
        let receiver = self.summary(&function.value);
        let name = function.attr.as_str();
        if makes_agent(Some(&receiver), name) {
            return agent(given(0).as_ref());
        }
        let held = receiver.resolved();
        if is_keyed(held) && matches!(name, "get" | "setdefault") {
            let key = node.arguments.args.first().and_then(constant);
            return receiver.item(key.as_ref());
        }
        match (held, name) {
            (Operand::Tools, "copy") => receiver,
            (Operand::Tools, "keys") => Operand::ToolItems,
            (Operand::Tools, "values") => Operand::ToolEntry,
            (Operand::Path(path), "partial") if path == "functools" => Operand::Function,
            (Operand::Path(path), "MethodType") if path == "types" => Operand::Function,
            (Operand::Path(module), _) => {
                Operand::Instance(Some(format!("{module}.{name}").into()))
            }
            (_, "get" | "value_or" | "pop") => {
                let value = node.arguments.args.get(usize::from(name != "value_or"));
                let value =
                    value.map(|value| self.with_fallback(&function.value, &receiver, value));
                Operand::one_of(std::iter::once(Operand::Unknown).chain(value).collect())
            }
            _ => Operand::Unknown,
        }
    }

    /// What a function of the language itself gives.
    fn built_in(&self, name: &str, node: &ExprCall) -> Operand {
        let first = node.arguments.args.first().map(|given| self.summary(given));
        let held = first.as_ref().map(Operand::resolved);
        match (name, held) {
            ("dict", None) => self.keywords(&node.arguments),
            ("dict", Some(Operand::Tools)) => Operand::Tools,
            (
                "list" | "sorted" | "reversed" | "set" | "tuple",
                Some(Operand::Tools | Operand::ToolItems),
            ) => Operand::ToolItems,
            ("type", Some(Operand::Agent(_))) => Operand::Path("Agent".to_owned()),
            ("vars", Some(Operand::Path(path))) => Operand::Path(format!("{path}.__dict__")),
            _ => Operand::Unknown,
        }
    }

    /// `dict(title="Heat")` is the map it writes.
    fn keywords(&self, given: &Arguments) -> Operand {
        let key = |keyword: &Keyword| keyword.arg.as_ref().map(|name| Value::from(name.as_str()));
        let values = given.keywords.iter().map(|keyword| self.summary(&keyword.value));
        Operand::map(given.keywords.iter().map(key).collect(), values.collect())
    }

    /// `getattr(os, "system")` is `os.system`.
    fn getattr(&self, node: &ExprCall) -> Operand {
        let [object, name, ..] = &*node.arguments.args else { return Operand::Unknown };
        let object = self.summary(object);
        let (Some(path), Some(Value::String(name))) = (object.path(), constant(name)) else {
            return Operand::Unknown;
        };
        Operand::Path(format!("{path}.{name}"))
    }

    /// The module of `__import__("x")` and `importlib.import_module("x")`.
    pub(super) fn imported_by_call(&self, node: &ExprCall) -> Option<String> {
        let imports = if let Expr::Name(function) = &*node.func {
            let bound = self.recorder.bound(&function.id).and_then(|bound| bound.path());
            bound == Some("importlib.import_module") || function.id == "__import__"
        } else if let Expr::Attribute(function) = &*node.func {
            let module =
                function.value.as_name_expr().and_then(|name| self.recorder.bound(&name.id));
            function.attr.as_str() == "import_module"
                && module.is_some_and(|module| module.path() == Some("importlib"))
        } else {
            false
        };
        let name = node.arguments.args.first().filter(|_| imports)?;
        let Some(Value::String(module)) = constant(name) else { return None };
        Some(module)
    }

    pub(super) fn arguments(&self, given: &Arguments) -> Vec<Argument> {
        let positional =
            given.args.iter().map(|value| Argument { name: None, value: self.summary(value) });
        let keywords = given.keywords.iter().map(|keyword| Argument {
            name: Some(keyword.arg.as_ref().map_or("**", |name| name.as_str()).to_owned()),
            value: self.summary(&keyword.value),
        });
        positional.chain(keywords).collect()
    }
}

/// The name an expression begins with: `page` in `page.items["x"].get("y")`.
fn root(expression: &Expr) -> Option<&str> {
    let mut expression = expression;
    loop {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "ruff's expressions; the rest has no name"
        )]
        match expression {
            Expr::Name(node) => return Some(&node.id),
            Expr::Attribute(node) => expression = &node.value,
            Expr::Subscript(node) => expression = &node.value,
            Expr::Call(node) => expression = &node.func,
            _ => return None,
        }
    }
}

fn same_name(one: &Expr, other: &Expr) -> bool {
    one.as_name_expr().zip(other.as_name_expr()).is_some_and(|(one, other)| one.id == other.id)
}

fn is_keyed(object: &Operand) -> bool {
    matches!(object, Operand::Context | Operand::Tools | Operand::ToolEntry)
}

/// The value of a scalar literal.
pub(super) fn constant(expression: &Expr) -> Option<Value> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ruff's expressions; the rest are not scalars"
    )]
    match expression {
        Expr::StringLiteral(node) => Some(Value::from(node.value.to_str())),
        Expr::NumberLiteral(node) => number(&node.value),
        Expr::BooleanLiteral(node) => Some(Value::from(node.value)),
        Expr::NoneLiteral(_) => Some(Value::Null),
        Expr::UnaryOp(node) if node.op == UnaryOp::USub => {
            let Value::Number(number) = constant(&node.operand)? else { return None };
            serde_json::from_str(&format!("-{number}")).ok()
        }
        _ => None,
    }
}

fn number(number: &Number) -> Option<Value> {
    match number {
        Number::Int(integer) => integer
            .as_i64()
            .map(Value::from)
            .or_else(|| serde_json::from_str(&integer.to_string()).ok()),
        Number::Float(float) => serde_json::Number::from_f64(*float).map(Value::Number),
        Number::Complex { .. } => None,
    }
}
