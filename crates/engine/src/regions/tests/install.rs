//! Installing and removing, whole and interrupted.

use super::*;

#[test]
fn a_snapshot_takes_the_place_of_all_that_a_region_had() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let expected = rows(&sender, REGION);
    let other = rows(&receiver, OTHER);
    // What is hot must not outlive it.
    let old = rows(&receiver, REGION);
    is_shown(&receiver, &old);
    is_shown(&receiver, &other);

    let incoming = send(&sender, &receiver, REGION).unwrap();
    receiver.install(&at(50), incoming).unwrap();
    for receiver in [receiver, open(image(dir.path()).path())] {
        assert_eq!(rows(&receiver, REGION), expected);
        assert_eq!(rows(&receiver, OTHER), other);
        is_shown(&receiver, &expected);
        is_shown(&receiver, &other);
        assert_eq!(receiver.applied(REGION).unwrap(), at(50));
        assert_eq!(receiver.durable(REGION), Some(50));
        let gone = old.iter().filter(|(family, key, _)| {
            let is_same = |row: &&(u8, Vec<u8>, Vec<u8>)| row.0 == *family && row.1 == *key;
            !expected.iter().any(|row| is_same(&row))
        });
        for (family, key, _) in gone {
            let family = Family::of_byte(*family).unwrap();
            assert!(receiver.engine.get(family, key).unwrap().is_none());
        }
        for family in Family::ALL {
            let mut walk = receiver.engine.background_rows(family, &[], &[]);
            while let Some((_, value)) = walk.next().unwrap() {
                assert_ne!(value, b"old");
            }
        }
        // It goes on from there.
        fill(&receiver, REGION, descriptor(100, 150).slots, 51, "newer");
        assert_eq!(receiver.applied(REGION).unwrap(), at(51));
    }
}

/// The process dies after each step in turn. The next one finds the old state, or the new one, whole.
#[test]
fn a_crash_after_any_step_leaves_the_old_state_or_the_new_one() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let (expected, old, other) = (
        rows(&sender, REGION),
        rows(&receiver, REGION),
        rows(&receiver, OTHER),
    );
    receiver.sync().unwrap();
    let images: Arc<Mutex<Vec<(String, TempDir)>>> = Arc::default();
    let (path, taken) = (dir.path().to_owned(), images.clone());
    *receiver.after_step.lock() = Some(Box::new(move |step| {
        taken.lock().push((step.to_string(), image(&path)));
        Ok(())
    }));
    let incoming = send(&sender, &receiver, REGION).unwrap();
    images.lock().push(("received".into(), image(dir.path())));
    receiver.install(&at(50), incoming).unwrap();
    let images = std::mem::take(&mut *images.lock());
    let steps: Vec<&str> = images.iter().map(|(step, _)| &step[..]).collect();
    assert_eq!(
        steps,
        [
            "received",
            "kept",
            "marked",
            "cleared",
            "ingested",
            "ingested",
            "ingested",
            "ingested",
            "set",
            "forgotten"
        ]
    );
    for (at_step, (step, image)) in images.iter().enumerate() {
        let after = open(image.path());
        let is_old = at_step < 2;
        assert_eq!(
            rows(&after, REGION),
            if is_old {
                old.clone()
            } else {
                expected.clone()
            },
            "{step}"
        );
        let place = if is_old { at(4) } else { at(50) };
        assert_eq!(after.applied(REGION).unwrap(), place, "{step}");
        assert_eq!(rows(&after, OTHER), other, "{step}");
        assert!(
            after
                .system_rows(SystemKind::Installing)
                .unwrap()
                .is_empty()
        );
        assert!(!image.path().join("incoming").exists(), "{step}");
    }
}

/// An error in between, and a new attempt in the same process.
#[test]
fn what_was_interrupted_is_begun_anew() {
    for stop_at in ["kept", "marked", "cleared", "ingested", "set", "forgotten"] {
        let (_sender_dir, sender, dir, receiver) = nodes();
        let expected = rows(&sender, REGION);
        *receiver.after_step.lock() = Some(Box::new(move |step| match step == stop_at {
            true => Err(EngineError::Closing),
            false => Ok(()),
        }));
        let incoming = send(&sender, &receiver, REGION).unwrap();
        assert!(receiver.install(&at(50), incoming).is_err());
        *receiver.after_step.lock() = None;
        let incoming = send(&sender, &receiver, REGION).unwrap();
        receiver.install(&at(50), incoming).unwrap();
        assert_eq!(rows(&receiver, REGION), expected, "{stop_at}");
        drop(receiver);
        assert_eq!(rows(&open(dir.path()), REGION), expected, "{stop_at}");
    }
}

/// The files are gone, or damaged: what is half there is told to be lost, until it is removed.
#[test]
fn a_region_whose_snapshot_has_vanished_half_way_is_lost() {
    for damaged in ["installation", "metadata-000000.sst"] {
        let (_sender_dir, sender, dir, receiver) = nodes();
        let other = rows(&receiver, OTHER);
        *receiver.after_step.lock() = Some(Box::new(|step| match step == "cleared" {
            true => Err(EngineError::Closing),
            false => Ok(()),
        }));
        let incoming = send(&sender, &receiver, REGION).unwrap();
        assert!(receiver.install(&at(50), incoming).is_err());
        drop(receiver);
        let file = dir
            .path()
            .join("incoming")
            .join(REGION.to_string())
            .join(damaged);
        fs::write(file, b"damage").unwrap();
        // Whoever opens it may crash before its log is destroyed.
        for _ in 0..2 {
            let receiver = open(dir.path());
            assert_eq!(receiver.lost(), &BTreeSet::from([REGION]));
        }
        let receiver = open(dir.path());
        receiver.remove(REGION).unwrap();
        assert_eq!(rows(&receiver, REGION), []);
        assert_eq!(receiver.applied(REGION).unwrap(), Applied::default());
        assert_eq!(receiver.durable(REGION), None);
        assert_eq!(rows(&receiver, OTHER), other);
        let incoming = send(&sender, &receiver, REGION).unwrap();
        receiver.install(&at(50), incoming).unwrap();
        assert_eq!(rows(&receiver, REGION), rows(&sender, REGION));
        drop(receiver);
        assert!(open(dir.path()).lost().is_empty());
    }
}

#[test]
fn a_removed_region_leaves_nothing_and_may_come_again() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let other = rows(&receiver, OTHER);
    let old = rows(&receiver, REGION);
    is_shown(&receiver, &old);
    receiver.sync().unwrap();
    assert_eq!(receiver.durable(REGION), Some(4));
    receiver.remove(REGION).unwrap();
    for receiver in [receiver, open(image(dir.path()).path())] {
        assert_eq!(receiver.durable(REGION), None);
        assert_eq!(receiver.applied(REGION).unwrap(), Applied::default());
        assert_eq!(receiver.descriptor(REGION).unwrap(), None);
        for (family, key, _) in &old {
            let family = Family::of_byte(*family).unwrap();
            assert!(receiver.engine.get(family, key).unwrap().is_none());
        }
        assert_eq!(rows(&receiver, OTHER), other);
        let mut expiry = receiver.engine.background_rows(Family::Expiry, &[], &[]);
        while let Some((key, _)) = expiry.next().unwrap() {
            let slot = walk::slot_of(Family::Expiry, key).unwrap();
            assert!(descriptor(200, 300).slots.contains(slot));
        }
        let incoming = send(&sender, &receiver, REGION).unwrap();
        receiver.install(&at(50), incoming).unwrap();
        assert_eq!(rows(&receiver, REGION), rows(&sender, REGION));
    }
}
