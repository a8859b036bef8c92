//! The constraints of a deliverable, and the first place where a value does not keep to them.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value};

use crate::excerpt::counted;
use crate::excerpt::shortened;

use super::ContractFault;
use super::breach::{Breach, MAX_NAME, Mismatch, Path, whole};
use super::clause::{Clause, Kind, Range, count, kind_names, number};
use super::decimal::compare;

/// What is asked of one place in a value.
#[derive(Default)]
pub(super) struct Constraint {
    /// Where the contract asks for it, e.g. `deliverable.constraints.properties.movies`.
    at: String,
    /// Any of these types; empty allows all.
    kinds: Vec<Kind>,
    required: Vec<String>,
    item_count: Range<u64>,
    length: Range<u64>,
    magnitude: Range<Number>,
    /// The listed values; empty allows all.
    listed: Vec<Value>,
    properties: Vec<(String, Self)>,
    items: Option<Box<Self>>,
}

impl Constraint {
    pub(super) fn required(&self) -> &[String] {
        &self.required
    }

    pub(super) fn of_kind(kind: Kind, at: String) -> Self {
        Self { at, kinds: vec![kind], ..Self::default() }
    }

    pub(super) fn of_any(at: String) -> Self {
        Self { at, ..Self::default() }
    }

    /// The recursion here and in [`Self::check`] is bounded, because the depth of a deliverable is checked before.
    pub(super) fn parse(object: &Map<String, Value>, at: &str) -> Result<Self, ContractFault> {
        let clause = Clause::open(object, at)?;
        let mut constraint = Self {
            at: at.to_owned(),
            kinds: clause.kinds()?,
            required: clause.names("required")?,
            item_count: clause.range("min_items", "max_items", count)?,
            length: clause.range("min_length", "max_length", count)?,
            magnitude: clause.range("minimum", "maximum", number)?,
            listed: clause.listed()?,
            properties: clause.properties()?,
            items: clause.items()?,
        };
        constraint.settle_kinds()?;
        Ok(constraint)
    }

    /// The first breach, outermost first.
    pub(super) fn check(&self, value: &Value, path: &Path<'_>) -> Result<(), Breach> {
        self.check_kind(value, path)?;
        self.check_required(value, path)?;
        self.check_size(&ITEM_COUNT, value, path)?;
        self.check_size(&LENGTH, value, path)?;
        self.check_magnitude(value, path)?;
        self.check_listed(value, path)?;
        for (name, constraint) in &self.properties {
            if let Some(found) = value.as_object().and_then(|object| present(object, name)) {
                constraint.check(found, &Path::Key(path, name))?;
            }
        }
        let Some(constraint) = &self.items else { return Ok(()) };
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            constraint.check(item, &Path::Item(path, index))?;
        }
        Ok(())
    }

    fn check_kind(&self, value: &Value, path: &Path<'_>) -> Result<(), Breach> {
        if self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.holds(value)) {
            return Ok(());
        }
        let mismatch = match path {
            Path::Root => Mismatch::TypeMismatch,
            Path::Key(..) | Path::Item(..) => Mismatch::PropertyTypeMismatch,
        };
        Err(self.breach(mismatch, "type", value, path).expecting(&kind_names(&self.kinds)))
    }

    fn check_required(&self, value: &Value, path: &Path<'_>) -> Result<(), Breach> {
        let Some(object) = value.as_object() else { return Ok(()) };
        let Some(name) = self.required.iter().find(|name| present(object, name).is_none()) else {
            return Ok(());
        };
        let expected = format!("the key `{}`", shortened(name, MAX_NAME));
        let path = Path::Key(path, name);
        let breach = self
            .breach(Mismatch::MissingRequiredKey, "required", value, &path)
            .expecting(&expected);
        Err(breach.among_keys(&self.required, value))
    }

    fn check_size(&self, size: &Size, value: &Value, path: &Path<'_>) -> Result<(), Breach> {
        let Range { min, max } = (size.range)(self);
        let found = (size.measure)(value).map(whole);
        if found.is_none() && !self.kinds.is_empty() {
            return Ok(()); // another of the declared types
        }
        let fail = |low: bool, bound: u64| {
            let (mismatch, key, words) = if low {
                (size.too_few, size.min, "at least")
            } else {
                (size.too_many, size.max, "at most")
            };
            let expected = format!("{} of {words} {}", size.noun, counted(bound, size.unit));
            Err(self
                .breach(mismatch, key, value, path)
                .expecting(&expected)
                .detail(&format!("expected_{key}"), bound)
                .detail(size.actual, found))
        };
        match (*min, *max) {
            (Some(min), _) if found.is_none_or(|found| found < min) => fail(true, min),
            (_, Some(max)) if found.is_none_or(|found| found > max) => fail(false, max),
            (None | Some(_), None | Some(_)) => Ok(()),
        }
    }

    fn check_magnitude(&self, value: &Value, path: &Path<'_>) -> Result<(), Breach> {
        let found = value.as_number();
        if found.is_none() && !self.kinds.is_empty() {
            return Ok(()); // another of the declared types
        }
        let off = |bound: &Number, wrong| found.is_none_or(|found| compare(found, bound) == wrong);
        let Range { min, max } = &self.magnitude;
        let sides = [
            (min, Ordering::Less, Mismatch::MinimumViolation, "minimum", "at least"),
            (max, Ordering::Greater, Mismatch::MaximumViolation, "maximum", "at most"),
        ];
        for (bound, wrong, mismatch, key, words) in sides {
            let Some(bound) = bound.as_ref().filter(|bound| off(bound, wrong)) else { continue };
            let shown = shortened(&bound.to_string(), MAX_NAME);
            let expected = format!("a number of {words} {shown}");
            let breach = self.breach(mismatch, key, value, path).expecting(&expected);
            let exact = shown.len() <= MAX_NAME;
            let detail = if exact { Value::from(bound.clone()) } else { Value::from(shown) };
            return Err(breach.detail(&format!("expected_{key}"), detail));
        }
        Ok(())
    }

    fn check_listed(&self, value: &Value, path: &Path<'_>) -> Result<(), Breach> {
        if self.listed.is_empty() || self.listed.iter().any(|listed| same(listed, value)) {
            return Ok(());
        }
        let listed: Vec<_> = self.listed.iter().map(Value::to_string).collect();
        let expected = format!("one of {}", listed.join(", "));
        Err(self.breach(Mismatch::EnumViolation, "enum", value, path).expecting(&expected))
    }

    fn breach(&self, mismatch: Mismatch, key: &str, value: &Value, path: &Path<'_>) -> Breach {
        let shape = self.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
        Breach::new(mismatch, path.to_string(), value)
            .shaped(if shape.is_empty() { "any".to_owned() } else { shape })
            .detail("constraint_path", format!("{}.{key}", self.at))
    }

    /// Keys imply a type if none is declared. A key of a type that is not declared is a fault.
    fn settle_kinds(&mut self) -> Result<(), ContractFault> {
        let object = !self.required.is_empty() || !self.properties.is_empty();
        let array = self.items.is_some();
        if self.kinds.is_empty() && (object || array) {
            self.kinds = vec![if object { Kind::Object } else { Kind::Array }];
        }
        let implied = [
            ("required", !self.required.is_empty(), Kind::Object),
            ("properties", !self.properties.is_empty(), Kind::Object),
            ("items", array, Kind::Array),
            ("min_items", self.item_count.min.is_some(), Kind::Array),
            ("max_items", self.item_count.max.is_some(), Kind::Array),
            ("min_length", self.length.min.is_some(), Kind::String),
            ("max_length", self.length.max.is_some(), Kind::String),
            ("minimum", self.magnitude.min.is_some(), Kind::Number),
            ("maximum", self.magnitude.max.is_some(), Kind::Number),
        ];
        let mut used = implied.into_iter().filter(|(_, is_used, _)| *is_used);
        let first = used.clone().next().map(|(_, _, kind)| kind);
        let declared =
            if self.kinds.is_empty() { Vec::from_iter(first) } else { self.kinds.clone() };
        let covers = |kind: Kind| {
            declared.contains(&kind) || kind == Kind::Number && declared.contains(&Kind::Integer)
        };
        match used.find(|(_, _, kind)| !covers(*kind)) {
            None => Ok(()),
            Some((key, _, kind)) => Err(ContractFault::Inapplicable {
                path: format!("{}.{key}", self.at),
                applies: kind.phrase(),
                declared: kind_names(&declared),
            }),
        }
    }
}

/// A count of something a value holds, and how its bounds are named.
struct Size {
    min: &'static str,
    max: &'static str,
    actual: &'static str,
    too_few: Mismatch,
    too_many: Mismatch,
    noun: &'static str,
    unit: &'static str,
    range: fn(&Constraint) -> &Range<u64>,
    measure: fn(&Value) -> Option<usize>,
}

const ITEM_COUNT: Size = Size {
    min: "min_items",
    max: "max_items",
    actual: "actual_items",
    too_few: Mismatch::MinItemsViolation,
    too_many: Mismatch::MaxItemsViolation,
    noun: "an array",
    unit: "item",
    range: |constraint| &constraint.item_count,
    measure: |value| value.as_array().map(Vec::len),
};

const LENGTH: Size = Size {
    min: "min_length",
    max: "max_length",
    actual: "actual_length",
    too_few: Mismatch::MinLengthViolation,
    too_many: Mismatch::MaxLengthViolation,
    noun: "a string",
    unit: "character",
    range: |constraint| &constraint.length,
    measure: |value| value.as_str().map(|text| text.chars().count()),
};

/// A key of a value, whether its program wrote `movies` or `:movies`; null counts as present.
fn present<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| object.get(&format!(":{name}")))
}

fn same(listed: &Value, value: &Value) -> bool {
    match (listed.as_number(), value.as_number()) {
        (Some(listed), Some(number)) => compare(listed, number) == Ordering::Equal,
        (None | Some(_), None | Some(_)) => listed == value,
    }
}
