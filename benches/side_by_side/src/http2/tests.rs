//! Frames and trailers from fixed bytes.

use super::*;

#[test]
fn status_is_found_in_every_form_that_servers_send() {
    let plain = [&b"\x00\x0bgrpc-status\x01"[..], b"0"].concat();
    assert_eq!(grpc_status(&plain), Some(0));
    // Table size update, static entry, incremental indexing, Huffman name and value.
    let mut coded = vec![0x20, 0x88, 0x40, 0x88];
    coded.extend_from_slice(&GRPC_STATUS);
    for (code, status) in [
        (&[0x07][..], 0),
        (&[0x17], 2),
        (&[0x67], 3),
        (&[0x7b], 8),
        (&[0x7f], 9),
        (&[0x0b, 0x5f], 14),
    ] {
        let mut block = coded.clone();
        block.push(0x80 | code.len() as u8);
        block.extend_from_slice(code);
        assert_eq!(grpc_status(&block), Some(status), "{code:02x?}");
    }
    assert_eq!(grpc_status(b"\x88\x00\x03foo\x01x"), None);
    assert_eq!(grpc_status(b"\x00\x7f"), None);
}

#[test]
fn calls_split_long_messages_and_end_once() {
    let mut calls = Calls::new("/a/B", "h:1");
    let mut out = Vec::new();
    let message = vec![7; 20_000];
    assert_eq!(calls.push(&mut out, &message, true), 1);
    assert_eq!(calls.push(&mut out, b"x", false), 3);
    let (mut data, mut ends) = (Vec::new(), 0);
    // A client's DATA frames read like a server's.
    let mut incoming = Incoming::default();
    let taken = incoming.read(&out, &mut Vec::new(), |event| {
        match event {
            Event::Data { stream: 1, bytes } => data.extend_from_slice(bytes),
            Event::End { stream: 1, .. } => ends += 1,
            Event::Data { stream: 3, bytes } => assert_eq!(bytes, b"\0\0\0\0\x01x"),
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    });
    assert_eq!(taken, Ok(out.len()));
    assert_eq!((data.len(), ends), (20_005, 1));
    assert_eq!(data[..5], [0, 0, 0, 0x4e, 0x20]);
}

#[test]
fn control_frames_are_answered_and_pieces_wait() {
    let mut incoming = Incoming::default();
    let mut reply = Vec::new();
    let mut input = Vec::new();
    frame(&mut input, SETTINGS, 0, 0, 0);
    frame(&mut input, PING, 0, 0, 8);
    input.extend_from_slice(b"12345678");
    frame(&mut input, WINDOW_UPDATE, 0, 0, 4);
    input.extend_from_slice(&9_u32.to_be_bytes());
    let whole = input.len();
    frame(&mut input, DATA, 0, 1, 100);
    let mut events = Vec::new();
    let taken = incoming.read(&input, &mut reply, |event| {
        events.push(format!("{event:?}"));
        Ok(())
    });
    assert_eq!((taken, events), (Ok(whole), vec!["Window(9)".to_string()]));
    assert_eq!(reply, b"\0\0\0\x04\x01\0\0\0\0\0\0\x08\x06\x01\0\0\0\x0012345678");
    let mut end = Vec::new();
    frame(&mut end, GOAWAY, 0, 0, 8);
    end.extend_from_slice(&[0; 8]);
    assert!(incoming.read(&end, &mut reply, |_| Ok(())).is_err());
}
