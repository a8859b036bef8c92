//! Each layer of containment, and the ladder they make up.

use recurgent::worker::Tier;

use crate::drive::Driver;

#[test]
fn this_kernel_offers_the_strongest_tier() {
    let driver = Driver::new();
    let reached = driver.containment();
    assert_eq!(reached.tier, Tier::Namespaces, "{:?}", reached.missing);
}
