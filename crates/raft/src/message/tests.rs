use std::collections::{BTreeMap, BTreeSet};

use cairn_encoding::raft::Membership;
use openraft::EntryPayload;

use super::*;
use crate::consensus::{Batch, raft_log_id, raft_membership};

const VOTE: Vote = Vote {
    term: 3,
    candidate: 2,
    committed: true,
};
const VOTE_HEX: &str = "0000000000000003 0000000000000002 01";

fn id(term: u64, index: u64) -> LogId {
    LogId { term, index }
}

#[track_caller]
fn check(actual: &[u8], expected: &str) {
    let hex: String = actual.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected.replace(' ', ""));
}

#[track_caller]
fn check_request(call: Call, kind: u8, expected: &str) {
    let request = Request {
        region: 7,
        from: 8,
        to: 9,
        call,
    };
    let encoded = request.encode();
    let head = format!("{kind:02x} 0000000000000007 0000000000000008 0000000000000009");
    check(&encoded, &format!("{head} {expected}"));
    assert_eq!(Request::decode(&encoded).unwrap(), request);
    for end in 0..encoded.len() {
        let cut = Request::decode(&encoded.slice(..end));
        // The last field of a piece has any length.
        assert!(cut.is_err() || matches!(request.call, Call::Piece { .. }));
    }
}

#[test]
fn appends() {
    let entry = |index, payload| RaftEntry {
        log_id: raft_log_id(id(2, index)),
        payload,
    };
    let batch = Batch {
        timestamp_ms: 1,
        epoch: 2,
        payload: Bytes::from_static(b"abc"),
    };
    let membership = Membership {
        configs: vec![BTreeSet::from([1])],
        nodes: BTreeMap::from([(1, 5)]),
    };
    let membership = raft_membership(&membership).unwrap();
    let entries = vec![
        entry(5, EntryPayload::Blank),
        entry(6, EntryPayload::Normal(batch)),
        entry(7, EntryPayload::Membership(membership)),
    ];
    let call = Call::append(VOTE, Some(id(1, 4)), Some(id(1, 3)), 9, entries);
    let expected = format!(
        "{VOTE_HEX} 01 0000000000000001 0000000000000004 01 0000000000000001 0000000000000003 \
         0000000000000009 00000003 \
         0000000000000002 00000001 00 \
         0000000000000002 00000014 01 0000000000000001 0000000000000002 616263 \
         0000000000000002 00000022 02 01 00000001 0000000000000001 \
         00000001 0000000000000001 0000000000000005"
    );
    check_request(call, 1, &expected);
    let heartbeat = Call::append(VOTE, None, None, 9, Vec::new());
    let expected = format!("{VOTE_HEX} 00 00 0000000000000009 00000000");
    check_request(heartbeat, 1, &expected);
}

#[test]
fn other_requests() {
    let candidacy = || Candidacy {
        vote: VOTE,
        last: Some(id(1, 4)),
        transfer: true,
    };
    let expected = format!("{VOTE_HEX} 01 0000000000000001 0000000000000004 01");
    check_request(Call::Vote(candidacy()), 2, &expected);
    check_request(Call::PreVote(candidacy()), 3, &expected);
    let transfer = Call::Transfer {
        vote: VOTE,
        to: 6,
        last: None,
        now: 9,
    };
    let expected = format!("{VOTE_HEX} 0000000000000006 00 0000000000000009");
    check_request(transfer, 4, &expected);
    let begin = Call::Begin {
        vote: VOTE,
        transfer: 1,
        applied: Applied::default(),
    };
    let expected = format!("{VOTE_HEX} 0000000000000001 00 0000000000000000 00 00 00000000");
    check_request(begin, 5, &expected);
    let piece = Call::Piece {
        transfer: 1,
        number: 2,
        bytes: Bytes::from_static(b"xy"),
    };
    check_request(piece, 6, "0000000000000001 0000000000000002 7879");
    let end = Call::End {
        transfer: 1,
        pieces: 2,
    };
    check_request(end, 7, "0000000000000001 0000000000000002");
    check_request(Call::Read, 8, "");
}

#[test]
fn responses() {
    let cases = [
        (Response::Refused("no".to_string()), "00 6e6f".to_string()),
        (Response::Appended(Appended::All), "01 00".to_string()),
        (
            Response::Appended(Appended::UpTo(Some(id(1, 2)))),
            "01 01 01 0000000000000001 0000000000000002".to_string(),
        ),
        (Response::Appended(Appended::Conflict), "01 02".to_string()),
        (
            Response::Appended(Appended::Higher(VOTE)),
            format!("01 03 {VOTE_HEX}"),
        ),
        (
            Response::Voted {
                vote: VOTE,
                granted: true,
                last: None,
                now: 9,
            },
            format!("02 {VOTE_HEX} 01 00 0000000000000009"),
        ),
        (Response::Done, "03".to_string()),
        (Response::Installed(VOTE), format!("04 {VOTE_HEX}")),
        (
            Response::Read {
                id: id(1, 2),
                now: 9,
            },
            "05 0000000000000001 0000000000000002 0000000000000009".to_string(),
        ),
    ];
    for (response, expected) in cases {
        let encoded = response.encode();
        check(&encoded, &expected);
        assert_eq!(Response::decode(&encoded), Ok(response));
    }
    assert!(Response::decode(&[]).is_err());
    assert!(Response::decode(&[9]).is_err());
}

/// A newer node may say more than this one knows of, at the end.
#[test]
fn what_a_newer_node_adds_is_passed_over() {
    let longer = |bytes: Bytes| Bytes::from([&bytes[..], b"more"].concat());
    let calls = [
        Call::append(VOTE, None, None, 9, Vec::new()),
        Call::Vote(Candidacy {
            vote: VOTE,
            last: None,
            transfer: false,
        }),
        Call::End {
            transfer: 1,
            pieces: 2,
        },
        Call::Read,
    ];
    for call in calls {
        let request = Request {
            region: 7,
            from: 8,
            to: 9,
            call,
        };
        assert_eq!(Request::decode(&longer(request.encode())).unwrap(), request);
    }
    let responses = [
        Response::Appended(Appended::All),
        Response::Done,
        Response::Read {
            id: id(1, 2),
            now: 9,
        },
    ];
    for response in responses {
        assert_eq!(Response::decode(&longer(response.encode())), Ok(response));
    }
}
