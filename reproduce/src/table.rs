//! Tables of numbers, printed and ours.

use serde::{Deserialize, Serialize};

/// Table of numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Headings of the columns, without that of the rows' names.
    pub columns: Vec<String>,
    /// Digits after the point, for each column.
    pub digits: Vec<usize>,
    /// Rows.
    pub rows: Vec<Row>,
}

/// Row of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name.
    pub name: String,
    /// Values; `None` where there is none.
    pub values: Vec<Option<f64>>,
    /// Smallest and largest value of the central 95 %, where an experiment has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<(f64, f64)>,
}

/// Printed value outside the range of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Name of the row.
    pub row: String,
    /// Heading of the column.
    pub column: String,
    /// Printed value and range.
    pub text: String,
}

impl Table {
    /// Returns a table without rows. Each heading may end with `:` and a number of digits after the point.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let pairs = headings.iter().map(|heading| heading.split_once(':').unwrap_or((heading, "0")));
        let (columns, digits) = pairs
            .map(|(name, digits)| (name.to_owned(), digits.parse::<usize>().unwrap_or_default()))
            .unzip();
        Self { columns, digits, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, name: &str, values: &[f64]) {
        self.rows.push(Row {
            name: name.to_owned(),
            values: values.iter().map(|value| Some(*value)).collect(),
            ranges: Vec::new(),
        });
    }

    /// Adds a row of means over sets, with the central 95 % of the sets. Each set has a value for each column.
    pub fn add_sets(&mut self, name: &str, sets: &[Vec<f64>]) {
        let mut row = Row { name: name.to_owned(), ..Row::default() };
        for column in 0..self.columns.len() {
            let mut values: Vec<f64> = sets.iter().filter_map(|set| set.get(column)).copied().collect();
            values.sort_by(f64::total_cmp);
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            let beyond = values.len() / 40;
            let last = values.len().saturating_sub(1 + beyond);
            let range = values.get(beyond).copied().zip(values.get(last).copied());
            row.values.push(Some(mean));
            row.ranges.push(range.unwrap_or((mean, mean)));
        }
        self.rows.push(row);
    }

    /// Returns the differences to another table of the same shape, and the cells that lie outside the ranges of this
    /// one as rounded.
    #[must_use]
    pub fn minus(&self, printed: &Self) -> (Self, Vec<Exception>) {
        let mut difference = Self { rows: Vec::new(), ..self.clone() };
        let mut outside = Vec::new();
        for ours in &self.rows {
            let Some(theirs) = printed.rows.iter().find(|theirs| theirs.name == ours.name) else { continue };
            let mut row = Row { name: ours.name.clone(), ..Row::default() };
            for (index, value) in ours.values.iter().enumerate() {
                let digits = self.digits.get(index).copied().unwrap_or_default();
                let pair = value.zip(theirs.values.get(index).copied().flatten());
                row.values.push(pair.map(|(ours, theirs)| ours - theirs));
                let Some((low, high)) =
                    ours.ranges.get(index).map(|(low, high)| (rounded(*low, digits), rounded(*high, digits)))
                else {
                    continue;
                };
                if pair.is_some_and(|(_, printed)| printed < low - 1e-9 || printed > high + 1e-9) {
                    let column = self.columns.get(index).map_or("", String::as_str);
                    let printed = theirs.values.get(index).copied().flatten().unwrap_or_default();
                    let text = format!("{printed} outside {low} to {high}");
                    outside.push(Exception { row: ours.name.clone(), column: column.to_owned(), text });
                }
            }
            difference.rows.push(row);
        }
        (difference, outside)
    }

    /// Returns a value by names of row and column.
    #[must_use]
    pub fn value(&self, row: &str, column: &str) -> Option<f64> {
        let index = self.columns.iter().position(|known| known == column)?;
        let row = self.rows.iter().find(|known| known.name == row)?;
        row.values.get(index).copied().flatten()
    }

    /// Returns the number of values.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.rows.iter().map(|row| row.values.iter().flatten().count()).sum()
    }
}

/// Rounds to a number of digits after the point.
fn rounded(value: f64, digits: usize) -> f64 {
    let scale = 10f64.powi(digits as i32);
    (value * scale).round() / scale
}
