//! Snapshots on their way: what is in them, and what is refused.

use super::*;

#[test]
fn a_snapshot_waits_for_the_slots_that_another_region_has_yet() {
    let (_sender_dir, sender, _dir, receiver) = nodes();
    let is_taken = |sent: Result<Incoming>, by: u64| {
        let error = sent.map(|_| ()).unwrap_err();
        assert!(
            matches!(error, EngineError::SlotsTaken { other, .. } if other == by),
            "{error}"
        );
    };
    // Split off elsewhere; here that is not known yet.
    const HALF: u64 = 9;
    create(&sender, &[(HALF, descriptor(150, 200))]);
    fill(&sender, HALF, descriptor(150, 200).slots, 1, "half");
    is_taken(send(&sender, &receiver, HALF), REGION);
    let incoming = send(&sender, &receiver, REGION).unwrap();
    is_taken(send(&sender, &receiver, HALF), REGION);
    receiver.install(&at(50), incoming).unwrap();
    let incoming = send(&sender, &receiver, HALF).unwrap();
    // While it comes, nobody else may.
    const SAME: u64 = 10;
    sender.remove(HALF).unwrap();
    create(&sender, &[(SAME, descriptor(199, 200))]);
    is_taken(send(&sender, &receiver, SAME), HALF);
    drop(incoming);
    send(&sender, &receiver, SAME).unwrap();
}

#[test]
fn what_is_no_snapshot_of_the_region_is_refused() {
    let (_sender_dir, sender, dir, receiver) = nodes();
    let mut snapshot = sender.snapshot(REGION).unwrap();
    let piece = snapshot.next_piece().unwrap().unwrap();
    let refused = |region: u64, piece: &[u8]| {
        let mut incoming = receiver.receive(region).unwrap();
        assert!(incoming.write(piece).is_err());
    };
    refused(11, &piece);
    refused(REGION, &piece[..piece.len() - 1]);
    let forged = |family: Family, key: &[u8], value: Option<&[u8]>| {
        let mut forged = piece.clone();
        cairn_encoding::changes::append(&mut forged, family as u8, key, value);
        forged
    };
    refused(
        REGION,
        &forged(Family::Meta, &SystemKey::Format.encode(), Some(&[])),
    );
    let installing = SystemKey::Installing { region: REGION }.encode();
    refused(REGION, &forged(Family::Meta, &installing, Some(&[0; 4])));
    let name = names(descriptor(200, 300).slots).next().unwrap();
    let foreign = RowKey::Expiry {
        at_ms: u64::MAX,
        index: INDEX,
        key: name.as_bytes(),
    };
    refused(
        REGION,
        &forged(Family::Expiry, &foreign.encode(), Some(&[])),
    );
    refused(REGION, &forged(Family::Expiry, &[0xff; 40], None));
    refused(REGION, &forged(Family::Data, b"short", Some(&[])));
    assert!(
        !dir.path()
            .join("incoming")
            .join(REGION.to_string())
            .exists()
    );
}

/// Nothing of what comes after its moment shows in a snapshot, nor goes from it.
#[test]
fn a_snapshot_is_of_one_moment() {
    let (_sender_dir, sender, _dir, _receiver) = nodes();
    let slots = descriptor(100, 150).slots;
    let mut snapshots = Vec::new();
    for index in 51..56 {
        fill(&sender, REGION, slots, index, "later");
        // Some of it young, some of it stored.
        if index % 2 == 0 {
            sender.engine.drain().unwrap();
        }
        let expected = rows(&sender, REGION);
        snapshots.push((sender.snapshot(REGION).unwrap(), expected, at(index)));
    }
    sender.engine.start_filters();
    sender.engine.compact().unwrap();
    sender.remove(REGION).unwrap();
    sender.engine.compact().unwrap();
    for (mut snapshot, expected, place) in snapshots {
        assert_eq!(*snapshot.applied(), place);
        let mut rows = Vec::new();
        while let Some(piece) = snapshot.next_piece().unwrap() {
            for change in cairn_encoding::changes::read_piece(&piece).unwrap() {
                let (family, key, value) = change.unwrap();
                rows.push((family, key.to_vec(), value.unwrap().to_vec()));
            }
        }
        assert_eq!(rows, expected);
    }
}
