//! What payloads may take of memory that hold far more than they are long, under the eyes of an allocator.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cairn_rdb::file::{
    Damaged, Part, Progress, Reader, Version, append_end, append_head, append_key,
};
use cairn_rdb::{Corrupt, Form, Payload, Sum, lzf, part, seal, string};

struct Watching;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn take(bytes: usize) {
    let taken = TAKEN.get() + bytes;
    TAKEN.set(taken);
    MOST.set(MOST.get().max(taken));
}

fn give_back(bytes: usize) {
    TAKEN.set(TAKEN.get().saturating_sub(bytes));
}

// SAFETY: every call is handed to the system allocator unchanged; the counters are const-initialized thread-locals
// without a destructor, so touching them never allocates.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's obligations are passed on as they came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: as above; `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may be there for a moment.
        take(new_size);
        give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

const MB: usize = 1 << 20;

/// What checking takes beside what is there already.
fn taken_to_check(payload: &[u8]) -> (Result<(), Corrupt>, usize) {
    MOST.set(TAKEN.get());
    let before = TAKEN.get();
    let result = Payload::open(payload).unwrap().check();
    (result, MOST.get() - before)
}

/// Appends a string, compressed.
fn append_compressed(bytes: &[u8], payload: &mut Vec<u8>) {
    let mut compressed = Vec::new();
    assert!(lzf::compress(bytes, bytes.len(), &mut compressed));
    payload.push(0xc3);
    string::append_length(compressed.len() as u64, payload);
    string::append_length(bytes.len() as u64, payload);
    payload.extend_from_slice(&compressed);
}

/// A listpack of so many elements that the header does not count them.
fn listpack(head: &[u8], element: &[u8], times: usize) -> Vec<u8> {
    let len = 6 + head.len() + element.len() * times + 1;
    let mut bytes = (len as u32).to_le_bytes().to_vec();
    bytes.extend([0xff, 0xff]);
    bytes.extend_from_slice(head);
    bytes.extend(element.iter().cycle().take(element.len() * times));
    bytes.push(0xff);
    bytes
}

#[test]
fn a_hash_takes_what_its_bytes_take() {
    // The field of no length, and the value 0.
    let fields = listpack(b"", b"\x80\x01\x00\x01", 12 * MB);
    let mut payload = vec![16];
    append_compressed(&fields, &mut payload);
    let len = fields.len();
    drop(fields);
    seal(&mut payload);
    assert!(payload.len() < 2 * MB);
    let (result, taken) = taken_to_check(&payload);
    assert_eq!(result, Err(Corrupt));
    // Beside them the names that are in view at once.
    assert!(taken < len + 100 * MB, "{taken}");
}

/// A stream whose entries, in one node, share the name of their field.
fn sharing(name: &[u8], entries: u32) -> Vec<u8> {
    // Their number, that none was deleted, and the one name.
    let mut elements = vec![0xf3];
    elements.extend(entries.to_le_bytes());
    elements.extend([5, 0, 1, 1, 1, 0xf0]);
    elements.extend((name.len() as u32).to_le_bytes());
    elements.extend_from_slice(name);
    let length = name.len() + 5;
    elements.extend([14, 7, 0].map(|shift| (length >> shift & 127) as u8 | 128));
    let first_of_three = elements.len() - 3;
    elements[first_of_three] &= 127;
    elements.extend([0, 1]);
    for sequence in 1..=entries {
        // The same fields, the ID from that of the node on, the value 0, and that these are four elements.
        elements.extend([2, 1, 0, 1, 0xf3]);
        elements.extend(sequence.to_le_bytes());
        elements.extend([5, 0, 1, 4, 1]);
    }
    let mut payload = vec![19, 1];
    string::append_plain(&[0; 16], &mut payload);
    string::append_plain(&listpack(&elements, b"", 0), &mut payload);
    // The length, the last ID, the first, the last that was deleted, how many were added, and no group.
    for number in [entries, 0, entries, 0, 1, 0, 0, entries, 0] {
        string::append_length(number.into(), &mut payload);
    }
    seal(&mut payload);
    payload
}

/// Here each entry has the names for itself: what would come to gigabytes is refused.
#[test]
fn shared_names_are_not_written_out_without_end() {
    let name = vec![b'a'; 64 * 1024];
    let (result, _) = taken_to_check(&sharing(&name, 1000));
    assert_eq!(result, Ok(()));
    let (result, taken) = taken_to_check(&sharing(&name, 100_000));
    assert_eq!(result, Err(Corrupt));
    assert!(taken < MB, "{taken}");
}

/// Reads a file of one value, whose elements are made as they are read. Tells how many there were, and what it took.
fn taken_to_read(form: Form, count: u64, element: impl Fn(u64, &mut Vec<u8>)) -> (u64, usize) {
    let before = TAKEN.get();
    MOST.set(before);
    let (mut reader, mut sum, mut items) = (Reader::default(), Sum::default(), 0);
    let mut piece = Vec::new();
    append_head(Version::Redis70, &mut piece);
    append_key(b"key", 0, form, &mut piece);
    part::count(count, &mut piece);
    let mut read = |piece: &mut Vec<u8>| {
        reader.push(piece);
        piece.clear();
        reader.read(&mut |part| {
            items += u64::from(matches!(part, Part::Item(_)));
            Ok::<_, Damaged>(())
        })
    };
    for number in 0..count {
        element(number, &mut piece);
        if piece.len() > 64 * 1024 {
            sum.add(&piece);
            assert_eq!(read(&mut piece), Ok(Progress::Short));
        }
    }
    sum.add(&piece);
    append_end(sum, &mut piece);
    assert_eq!(read(&mut piece), Ok(Progress::Done));
    (items, MOST.get() - before)
}

#[test]
fn a_file_takes_no_more_than_a_piece_of_it() {
    let element = |number: u64, out: &mut Vec<u8>| {
        part::text(format!("element:{number}").as_bytes(), out);
    };
    let (items, most) = taken_to_read(Form::List, 5_000_000, element);
    assert_eq!(items, 5_000_000);
    assert!(most < MB, "{most}");
    // Eight bytes for each member, which may have grown just now.
    let (items, most) = taken_to_read(Form::Set, 2_000_000, element);
    assert_eq!(items, 2_000_000);
    assert!(most < 64 * MB, "{most}");
}
