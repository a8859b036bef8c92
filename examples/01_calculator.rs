//! The program of the README. Run it with
//! `RECURGENT_PROVIDER=scripted:examples/calculator.json cargo run -p recurgent --example 01_calculator`.
#![expect(clippy::print_stdout, reason = "an example shows its results")]

use recurgent::{Runtime, call};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::from_env()?;
    let calc = runtime.agent("calculator").build()?;
    calc.set("memory", 5)?;

    let sum = call!(calc.add(3))?;
    let fahrenheit = call!(calc.convert(100, from: "celsius", to: "fahrenheit"))?;
    for outcome in [sum, fahrenheit] {
        match outcome.result {
            Ok(value) => println!("{}.{} = {value}", outcome.role, outcome.method),
            Err(failure) => println!("{failure}"),
        }
    }
    Ok(())
}
