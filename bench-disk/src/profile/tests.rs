//! Profiles by name and from files.

use super::*;

fn parsed(text: &str) -> Result<Profile, String> {
    file::parse(text.as_bytes())
}

#[test]
fn names_are_known_and_others_are_files() {
    for name in ["boot", "quick", "standard", "soak", "fio"] {
        assert_eq!(Profile::named(name).expect("known").name, name);
    }
    let error = Profile::named("/nowhere/plan.json").expect_err("no such file");
    assert!(matches!(error, ProfileError::Unknown(_)), "{error}");
}

#[test]
fn the_fio_profile_takes_the_samples_of_the_recipe() {
    assert_eq!(Profile::fio().samples, 10_029);
}

#[test]
fn a_file_changes_its_base_and_nothing_else() {
    let plan = parsed(r#"{"base": "quick", "samples": 20000, "load": "all"}"#).expect("valid");
    let base = Profile::quick();
    assert_eq!((plan.name, plan.samples, plan.shape.load), ("file", 20_000, Load::All));
    assert_eq!((plan.min_time, plan.pace), (base.min_time, base.pace));
    assert!(plan.qualifies && plan.byte_budget > base.byte_budget);
    let empty = parsed(r#"{"base": "standard"}"#).expect("valid");
    assert_eq!(Profile { name: "standard", ..empty }, Profile::standard());
}

#[test]
fn an_easier_plan_does_not_qualify() {
    for easier in [
        r#"{"base": "quick", "samples": 5000}"#,
        r#"{"base": "quick", "min_seconds": 1}"#,
        r#"{"base": "quick", "syncs_per_second": 10}"#,
        r#"{"base": "quick", "append_bytes": 512}"#,
        r#"{"base": "quick", "preparation": "prewrite"}"#,
        r#"{"base": "quick", "load": "none"}"#,
    ] {
        assert!(!parsed(easier).expect("valid").qualifies, "{easier}");
    }
    assert!(parsed(r#"{"base": "quick", "syncs_per_second": 0}"#).expect("valid").qualifies);
    assert!(!Profile::standard().with_confidence(0.95).qualifies);
    assert!(Profile::standard().with_confidence(0.99).qualifies);
    assert!(Profile::standard().with_confidence(0.999).qualifies);
}

#[test]
fn files_out_of_range_are_refused_with_the_reason() {
    for (wrong, word) in [
        (r#"{"base": "boot"}"#, "base"),
        (r#"{"base": "quick", "samples": 3}"#, "samples"),
        (r#"{"base": "quick", "time_box_seconds": 99999}"#, "time_box_seconds"),
        (r#"{"base": "quick", "time_box_seconds": 1}"#, "time_box_seconds"),
        (r#"{"base": "quick", "append_bytes": 99999999}"#, "append_bytes"),
        (r#"{"base": "quick", "sampels": 30000}"#, "sampels"),
        ("{}", "base"),
    ] {
        let reason = parsed(wrong).expect_err("refused");
        assert!(reason.contains(word), "{wrong}: {reason}");
    }
}

#[test]
fn every_profile_needs_less_than_400_megabytes() {
    for profile in [Profile::boot(), Profile::standard(), Profile::soak(), Profile::fio()] {
        assert!(profile.clone().with_load(Load::All).needed_bytes() < 400_000_000);
    }
    assert_eq!(Profile::boot().needed_bytes(), 96 << 20);
}
