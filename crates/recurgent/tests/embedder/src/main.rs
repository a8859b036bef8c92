//! An embedding program with serde types of its own. It ends with 0 if its floats are read as floats and its
//! 30-digit integers survive a call.

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::json::{self, Value};
use recurgent::provider::Scripted;
use recurgent::store::memory::MemoryStore;
use recurgent::{Runtime, call};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flattened {
    name: String,
    #[serde(flatten)]
    price: Price,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    amount: f64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Circle { radius: f64 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(f64),
    Text(String),
}

fn own_types() -> Result<(), serde_json::Error> {
    let flattened = Flattened { name: "tea".into(), price: Price { amount: 2.5 } };
    assert_eq!(serde_json::from_str::<Flattened>(&serde_json::to_string(&flattened)?)?, flattened);
    assert_eq!(serde_json::from_value::<Flattened>(serde_json::to_value(&flattened)?)?, flattened);
    let tagged: Tagged = serde_json::from_str(r#"{"kind": "Circle", "radius": 1.5}"#)?;
    assert_eq!(tagged, Tagged::Circle { radius: 1.5 });
    assert_eq!(serde_json::from_str::<Untagged>("0.25")?, Untagged::Number(0.25));
    Ok(())
}

fn large_integers() -> Result<(), Box<dyn std::error::Error>> {
    let script = Scripted::new().with("adder.next", "def next(number):\n    return number + 1\n");
    let mut config = Config::defaults();
    config.set("log", "off")?;
    let runtime = Runtime::builder(config)
        .provider(Arc::new(script))
        .store(Arc::new(MemoryStore::default()))
        .build()?;
    #[allow(unused_mut)]
    let mut adder = runtime.agent("adder").build()?;
    let number: Value = json::from_str("123456789012345678901234567890")?;
    let next = call!(adder.next(number))?.result?;
    assert_eq!(next.to_string(), "123456789012345678901234567891");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    own_types()?;
    large_integers()
}
