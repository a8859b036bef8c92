//! The JSON output of the benchmark has the documented shape. Costs are not checked here.
#![cfg(test)]

use std::process::Command;

use serde_json::Value;

#[test]
fn a_quick_run_prints_rows_and_curves_as_json() {
    let said = Command::new(env!("CARGO_BIN_EXE_recurgent-bench"))
        .args(["--quick", "--json", "--guest", "python"])
        .args([
            "--row",
            "stored-call",
            "--row",
            "prompt",
            "--row",
            "async-runtimes",
            "--curve",
            "log",
        ])
        .output()
        .unwrap();
    let progress = String::from_utf8_lossy(&said.stderr);
    let report: Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|e| panic!("{e}: {progress}"));
    assert_eq!(report["quick"], true);
    for key in ["date", "commit", "machine"] {
        assert!(report[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["stored-call", "prompt", "async-runtimes"], "{progress}");
    let call = &rows[0];
    let [ours, floor] = ["measured", "floor"].map(|key| call[key]["value"].as_f64().unwrap());
    assert!(ours > 0.0 && floor > 0.0 && call["ratio"].as_f64().unwrap() > 0.0, "{call:#}");
    assert_eq!(call["measured"]["unit"], "seconds");
    assert_eq!(call["bound"]["at_most_times"], 8.0);
    assert_eq!((&call["guest"], &rows[2]["guest"]), (&"python".into(), &Value::Null));
    // Rows that count instead of timing hold on any machine.
    assert_eq!((&rows[1]["verdict"], &rows[2]["verdict"]), (&"pass".into(), &"pass".into()));
    let curve = &report["curves"][0];
    let points = curve["points"].as_array().unwrap();
    assert_eq!((curve["curve"].as_str(), points.len()), (Some("log"), 3), "{curve:#}");
    assert!(points.iter().all(|point| point["ratio"].as_f64().unwrap() > 0.0), "{curve:#}");
    assert!(said.status.success(), "a quick run fails only if something does not work: {progress}");
}

#[test]
fn rows_without_a_guest_are_measured_with_every_guest_option() {
    for guest in ["python", "ruby"] {
        let said = Command::new(env!("CARGO_BIN_EXE_recurgent-bench"))
            .args(["--quick", "--json", "--row", "async-runtimes", "--guest", guest])
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(report["rows"][0]["verdict"], "pass", "{report:#}");
    }
}
