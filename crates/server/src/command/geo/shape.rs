//! What a search covers: a circle or a box around a position, and the cells of the map that it touches.
//!
//! The cells are found as Redis finds them, since the order of the results follows from it.

use super::hash::{Cell, Position};

const EARTH_RADIUS: f64 = 6_372_797.560856;
/// Half the equator on the square map, in meters.
const MAP_HALF: f64 = 20_037_726.37;

const DEGREE: f64 = std::f64::consts::PI / 180.0;

fn radians(degrees: f64) -> f64 {
    degrees * DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / DEGREE
}

/// The distance along a meridian, in meters.
fn distance_of_latitudes(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}

/// The distance over the surface of a round earth, in meters.
pub fn distance(from: Position, to: Position) -> f64 {
    let v = ((radians(to.longitude) - radians(from.longitude)) / 2.0).sin();
    if v == 0.0 {
        return distance_of_latitudes(from.latitude, to.latitude);
    }
    let (from, to) = (radians(from.latitude), radians(to.latitude));
    let u = ((to - from) / 2.0).sin();
    let a = u * u + from.cos() * to.cos() * v * v;
    2.0 * EARTH_RADIUS * a.sqrt().asin()
}

/// In the unit of the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub center: Position,
    pub extent: Extent,
    /// How many meters the unit has.
    pub unit: f64,
}

impl Shape {
    /// How far away a position is, if the shape holds it.
    pub fn distance_inside(&self, position: Position) -> Option<f64> {
        let center = self.center;
        match self.extent {
            Extent::Circle { radius } => {
                let distance = distance(center, position);
                let is_outside = distance > radius * self.unit;
                (!is_outside).then_some(distance)
            }
            Extent::Box { width, height } => {
                let up = distance_of_latitudes(position.latitude, center.latitude);
                if up > height * self.unit / 2.0 {
                    return None;
                }
                let beside_center = Position {
                    longitude: center.longitude,
                    latitude: position.latitude,
                };
                let aside = distance(position, beside_center);
                let is_outside = aside > width * self.unit / 2.0;
                (!is_outside).then(|| distance(center, position))
            }
        }
    }

    /// The cells to search, in this order: the middle one, and those of its neighbours that the shape reaches. On a
    /// map of very few cells one of them may be the neighbour on both sides.
    pub fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let mut step = self.step();
        let mut middle = Cell::around(self.center, step);
        if step > 1 && !bounds.lie_beside(middle) {
            step -= 1;
            middle = Cell::around(self.center, step);
        }
        let reaches = |(east, north): &(i32, i32)| step < 2 || bounds.reach(middle, *east, *north);
        let mut cells = Vec::with_capacity(9);
        for (east, north) in AROUND.into_iter().filter(reaches) {
            let cell = middle.neighbour(east, north);
            // The first of the neighbours is never the middle one.
            if cells.len() < 2 || cells.last() != Some(&cell) {
                cells.push(cell);
            }
        }
        cells
    }

    /// The finest grid on which the neighbours of a cell cover the shape, as a rule.
    fn step(&self) -> u32 {
        let reach = match self.extent {
            Extent::Circle { radius } => radius,
            Extent::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        let mut reach = reach * self.unit;
        if reach == 0.0 {
            return 26;
        }
        let mut step = 1;
        while reach < MAP_HALF {
            reach *= 2.0;
            step += 1;
        }
        step -= 2;
        // Cells are narrower towards the poles.
        let latitude = self.center.latitude.abs();
        step -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        step.clamp(1, 26).unsigned_abs()
    }

    fn bounds(&self) -> Bounds {
        let (width, height) = match self.extent {
            Extent::Circle { radius } => (self.unit * radius, self.unit * radius),
            Extent::Box { width, height } => {
                (self.unit * (width / 2.0), self.unit * (height / 2.0))
            }
        };
        let Position {
            longitude,
            latitude,
        } = self.center;
        let up = degrees(height / EARTH_RADIUS);
        // The edge nearer to the pole is the wider one, in degrees.
        let wider_edge = if latitude < 0.0 {
            latitude - up
        } else {
            latitude + up
        };
        let aside = degrees(width / EARTH_RADIUS / radians(wider_edge).cos());
        Bounds {
            west: longitude - aside,
            east: longitude + aside,
            south: latitude - up,
            north: latitude + up,
        }
    }
}

/// The middle and its neighbours, as steps to the east and to the north, in the order of the search.
const AROUND: [(i32, i32); 9] = [
    (0, 0),
    (0, 1),
    (0, -1),
    (1, 0),
    (-1, 0),
    (1, 1),
    (-1, 1),
    (1, -1),
    (-1, -1),
];

/// What a shape lies in.
struct Bounds {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Bounds {
    /// Whether the neighbours of a cell cover them.
    fn lie_beside(&self, cell: Cell) -> bool {
        let is_uncovered = cell.neighbour(0, 1).area().latitudes.max < self.north
            || cell.neighbour(0, -1).area().latitudes.min > self.south
            || cell.neighbour(1, 0).area().longitudes.max < self.east
            || cell.neighbour(-1, 0).area().longitudes.min > self.west;
        !is_uncovered
    }

    /// Whether they reach over the edges between a cell and its neighbour.
    fn reach(&self, cell: Cell, east: i32, north: i32) -> bool {
        let area = cell.area();
        let ends_before = match north {
            1 => area.latitudes.max > self.north,
            -1 => area.latitudes.min < self.south,
            _ => false,
        };
        let ends_beside = match east {
            1 => area.longitudes.max > self.east,
            -1 => area.longitudes.min < self.west,
            _ => false,
        };
        !ends_before && !ends_beside
    }
}
