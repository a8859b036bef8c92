//! Rust values as the arguments of a call, and the [`call!`](crate::call!) macro.

use lifecycle::request::Arguments;
use serde::Serialize;
use serde_json::{Map, to_finite_value};

/// The arguments of a call: `()`, a tuple of anything that can be serialised (arguments by position), or an
/// [`ArgumentList`] (arguments by position and by name).
pub trait IntoArguments {
    /// The arguments, or why a value cannot be one: JSON has neither NaN nor infinity, and its keys are texts.
    fn into_arguments(self) -> Result<Arguments, String>;
}

impl IntoArguments for Arguments {
    fn into_arguments(self) -> Result<Arguments, String> {
        Ok(self)
    }
}

macro_rules! tuple {
    ($($name:ident)*) => {
        impl<$($name: Serialize),*> IntoArguments for ($($name,)*) {
            #[expect(non_snake_case, reason = "the type parameters name the fields")]
            fn into_arguments(self) -> Result<Arguments, String> {
                let ($($name,)*) = self;
                let args = [$(to_finite_value(&$name)),*];
                let args = args.into_iter().collect::<Result<Vec<_>, _>>();
                Ok(Arguments { args: args.map_err(|error| error.to_string())?, kwargs: Map::new() })
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
tuple!(A B C D E F G);
tuple!(A B C D E F G H);

impl IntoArguments for () {
    fn into_arguments(self) -> Result<Arguments, String> {
        Ok(Arguments::default())
    }
}

/// A list of arguments, by position and by name.
#[derive(Debug, Default)]
pub struct ArgumentList {
    arguments: Arguments,
    problem: Option<String>,
}

impl ArgumentList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a positional argument.
    #[must_use]
    pub fn arg(mut self, value: impl Serialize) -> Self {
        match to_finite_value(&value) {
            Ok(value) => self.arguments.args.push(value),
            Err(error) => self.problem = Some(error.to_string()),
        }
        self
    }

    /// Adds a named argument.
    #[must_use]
    pub fn kwarg(mut self, name: &str, value: impl Serialize) -> Self {
        match to_finite_value(&value) {
            Ok(value) => {
                self.arguments.kwargs.insert(name.to_owned(), value);
            }
            Err(error) => self.problem = Some(error.to_string()),
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

/// Calls a method in the notation of a method call, named arguments included. Before the method stands the agent: a
/// variable, a field, or any other expression of identifiers and dots.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = recurgent::Runtime::from_env()?;
/// # let calc = runtime.agent("calculator").build()?;
/// use recurgent::call;
/// let sum = call!(calc.add(3))?;
/// let fahrenheit = call!(calc.convert(100, from: "celsius", to: "fahrenheit"))?;
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! call {
    // The call itself: everything before the last dot is the agent.
    (@agent ($($agent:tt)+) . $method:ident ( $($arguments:tt)* )) => {
        $($agent)+.call(stringify!($method), $crate::call!(@list $crate::ArgumentList::new(); $($arguments)*))
    };
    (@agent ($($agent:tt)*) $next:tt $($rest:tt)+) => {
        $crate::call!(@agent ($($agent)* $next) $($rest)+)
    };
    (@list $list:expr;) => { $list };
    (@list $list:expr; $name:ident : $value:expr $(, $($rest:tt)*)?) => {
        $crate::call!(@list $list.kwarg(stringify!($name), $value); $($($rest)*)?)
    };
    (@list $list:expr; $value:expr $(, $($rest:tt)*)?) => {
        $crate::call!(@list $list.arg($value); $($($rest)*)?)
    };
    ($first:tt $($rest:tt)+) => {
        $crate::call!(@agent ($first) $($rest)+)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
    fn the_macro_reads_like_a_method_call() {
        let echo = Echo;
        let x = 4;
        let (method, arguments) = call!(echo.convert(x, "a", from: "celsius", to: [1, 2]));
        let arguments = arguments.unwrap();
        assert_eq!((method.as_str(), &arguments.args), ("convert", &vec![json!(4), json!("a")]));
        assert_eq!(Value::Object(arguments.kwargs), json!({"from": "celsius", "to": [1, 2]}));
        assert!(call!(echo.history()).1.unwrap().is_empty());
    }

    struct Desk {
        echo: Echo,
        echoes: [Echo; 1],
    }

    impl Desk {
        fn echo(&self) -> &Echo {
            &self.echo
        }

        fn convert(&self) -> [String; 4] {
            [
                call!(self.echo.convert(1)).0,
                call!(self.echo().convert()).0,
                call!(self.echoes[0].convert(1, to: "x")).0,
                call!((&self.echo).convert(1)).0,
            ]
        }
    }

    #[test]
    fn any_expression_before_the_method_is_the_agent() {
        let desk = Desk { echo: Echo, echoes: [Echo] };
        assert_eq!(desk.convert(), ["convert"; 4]);
        assert_eq!(call!(desk.echo.of(desk.echoes.len())).1.unwrap().args, [json!(1)]);
    }

    #[test]
    fn anything_that_can_be_serialised_is_an_argument() {
        #[derive(serde::Serialize)]
        struct Point {
            x: f64,
            label: Option<&'static str>,
        }
        let arguments = (Point { x: 1.5, label: None }, vec![(1, "a")], u128::MAX);
        let arguments = arguments.into_arguments().unwrap();
        let expected = [json!({"x": 1.5, "label": null}), json!([[1, "a"]]), json!(u128::MAX)];
        assert_eq!(arguments.args, expected);
    }

    #[test]
    fn nan_is_noticed() {
        assert!((1, f64::NAN).into_arguments().unwrap_err().contains("NaN"));
        assert!(ArgumentList::new().kwarg("x", f64::INFINITY).into_arguments().is_err());
    }
}
