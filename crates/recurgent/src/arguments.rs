//! Turning Rust values into the arguments of a call, and the [`call!`](crate::call!) sugar.

use std::collections::BTreeMap;

use lifecycle::request::Arguments;
use serde_json::{Map, Number, Value};

/// A value that can be an argument. Unlike `Into<Value>`, NaN is noticed instead of becoming null.
pub trait IntoValue {
    /// The JSON value, or why there is none.
    fn into_value(self) -> Result<Value, String>;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl IntoValue for $type {
            fn into_value(self) -> Result<Value, String> {
                Ok(Value::from(self))
            }
        }
    )*};
}
plain!(bool, i8, i16, i32, i64, u8, u16, u32, u64, usize, isize, &str, String, Value, Map<String, Value>, ());

impl IntoValue for f64 {
    fn into_value(self) -> Result<Value, String> {
        Number::from_f64(self)
            .map(Value::Number)
            .ok_or_else(|| format!("{self} is not a JSON number; pass a finite number or text"))
    }
}

impl IntoValue for f32 {
    fn into_value(self) -> Result<Value, String> {
        f64::from(self).into_value()
    }
}

impl<T: IntoValue> IntoValue for Option<T> {
    fn into_value(self) -> Result<Value, String> {
        self.map_or(Ok(Value::Null), IntoValue::into_value)
    }
}

impl<T: IntoValue> IntoValue for Vec<T> {
    fn into_value(self) -> Result<Value, String> {
        self.into_iter().map(IntoValue::into_value).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }
}

impl<T: IntoValue, const N: usize> IntoValue for [T; N] {
    fn into_value(self) -> Result<Value, String> {
        Vec::from(self).into_value()
    }
}

impl<T: IntoValue> IntoValue for BTreeMap<String, T> {
    fn into_value(self) -> Result<Value, String> {
        self.into_iter()
            .map(|(key, value)| Ok((key, value.into_value()?)))
            .collect::<Result<Map<_, _>, _>>()
            .map(Value::Object)
    }
}

/// Something a call can be made with: `()`, a tuple of values, or an [`ArgumentList`].
pub trait IntoArguments {
    /// The arguments, or why they cannot be.
    fn into_arguments(self) -> Result<Arguments, String>;
}

impl IntoArguments for Arguments {
    fn into_arguments(self) -> Result<Arguments, String> {
        Ok(self)
    }
}

macro_rules! tuple {
    ($($name:ident)*) => {
        impl<$($name: IntoValue),*> IntoArguments for ($($name,)*) {
            #[expect(non_snake_case, reason = "the type parameters name the fields")]
            fn into_arguments(self) -> Result<Arguments, String> {
                let ($($name,)*) = self;
                Ok(Arguments { args: vec![$($name.into_value()?),*], kwargs: Map::new() })
            }
        }
    };
}
tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);

impl IntoArguments for () {
    fn into_arguments(self) -> Result<Arguments, String> {
        Ok(Arguments::default())
    }
}

/// Arguments under construction, positional and named.
#[derive(Debug, Default)]
pub struct ArgumentList {
    arguments: Arguments,
    problem: Option<String>,
}

impl ArgumentList {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a positional argument.
    #[must_use]
    pub fn arg(mut self, value: impl IntoValue) -> Self {
        match value.into_value() {
            Ok(value) => self.arguments.args.push(value),
            Err(problem) => self.problem = Some(problem),
        }
        self
    }

    /// Adds a named argument.
    #[must_use]
    pub fn kwarg(mut self, name: &str, value: impl IntoValue) -> Self {
        match value.into_value() {
            Ok(value) => {
                self.arguments.kwargs.insert(name.to_owned(), value);
            }
            Err(problem) => self.problem = Some(problem),
        }
        self
    }
}

impl IntoArguments for ArgumentList {
    fn into_arguments(self) -> Result<Arguments, String> {
        match self.problem {
            None => Ok(self.arguments),
            Some(problem) => Err(problem),
        }
    }
}

/// Calls a method in the notation of a method call, named arguments included.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = recurgent::Runtime::from_env()?;
/// # let mut calc = runtime.agent("calculator").build()?;
/// use recurgent::call;
/// let sum = call!(calc.add(3))?;
/// let warm = call!(calc.convert(100, from: "celsius", to: "fahrenheit"))?;
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! call {
    ($agent:ident . $method:ident ( $($arguments:tt)* )) => {
        $agent.call(stringify!($method), $crate::call!(@list $crate::ArgumentList::new(); $($arguments)*))
    };
    (@list $list:expr;) => { $list };
    (@list $list:expr; $name:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::call!(@list $list.kwarg(stringify!($name), $value); $($($rest)*)?)
    };
    (@list $list:expr; $value:expr $(, $($rest:tt)*)?) => {
        $crate::call!(@list $list.arg($value); $($($rest)*)?)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Echo;
    impl Echo {
        #[expect(clippy::unused_self, reason = "stands in for an agent")]
        fn call(
            &self,
            method: &str,
            arguments: impl IntoArguments,
        ) -> (String, Result<Arguments, String>) {
            (method.to_owned(), arguments.into_arguments())
        }
    }

    #[test]
    fn the_sugar_reads_like_a_method_call() {
        let echo = Echo;
        let x = 4;
        let (method, arguments) = call!(echo.convert(x, "a", from: "celsius", to: [1, 2]));
        let arguments = arguments.unwrap();
        assert_eq!((method.as_str(), &arguments.args), ("convert", &vec![json!(4), json!("a")]));
        assert_eq!(Value::Object(arguments.kwargs), json!({"from": "celsius", "to": [1, 2]}));
        assert!(call!(echo.history()).1.unwrap().is_empty());
    }

    #[test]
    fn nan_is_noticed() {
        assert!((1, f64::NAN).into_arguments().unwrap_err().contains("NaN"));
        assert!(ArgumentList::new().kwarg("x", f64::INFINITY).into_arguments().is_err());
    }
}
