//! A cairn, no two alike.

use fastrand::Rng;

/// How wide the picture is.
const WIDTH: usize = 60;

/// Piles up flat stones, each a little wider than the one above it and none quite in the middle.
pub fn draw(random: &mut Rng) -> String {
    let mut picture = String::new();
    let mut width = random.usize(3..7);
    let mut middle = WIDTH / 2;
    for _ in 0..random.usize(4..8) {
        for line in stone(width, random) {
            let indent = middle - (width + 2) / 2;
            picture.push_str(&format!("{:indent$}{line}\n", ""));
        }
        // The next one must carry it: it reaches further on both sides.
        let wider = random.usize(3..8);
        middle = middle + random.usize(0..wider / 2 + 1) - wider / 4;
        width = (width + wider).min(WIDTH / 2 + 14);
        middle = middle.clamp((width + 2) / 2, WIDTH);
    }
    picture.push_str(&"~".repeat(WIDTH + 10));
    picture.push('\n');
    picture
}

fn stone(width: usize, random: &mut Rng) -> [String; 3] {
    let grain: String = (0..width)
        .map(|_| if random.u8(0..12) == 0 { '.' } else { ' ' })
        .collect();
    [
        format!(" .{}.", "-".repeat(width.saturating_sub(2))),
        format!("({grain})"),
        format!(" `{}'", "-".repeat(width.saturating_sub(2))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pile_fits_the_picture_and_differs() {
        let mut pictures = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let picture = draw(&mut Rng::with_seed(seed));
            assert!(picture.lines().all(|line| line.len() < 110), "{picture}");
            assert!(picture.lines().count() >= 13, "{picture}");
            pictures.insert(picture);
        }
        assert!(pictures.len() > 450);
    }
}
