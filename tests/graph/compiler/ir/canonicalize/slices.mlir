// run cpu: canonicalize
// A slice of a slice is one, a slice of all none; a transpose that moves ones alone is a reshape.
func.func @main(%x: f32[n, 9]) -> (f32[n, 2], f32[n, 9], f32[n, 9], f32[n, 1, 9]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = slice(%x) {starts = ["0", "8"], steps = array<i64: 1, -2>, sizes = ["n", "5"]} : (f32[n, 9]) -> f32[n, 5]
  %b = slice(%a) {starts = ["0", "1"], steps = array<i64: 1, 3>, sizes = ["n", "2"]} : (f32[n, 5]) -> f32[n, 2]
  %c = slice(%x) {starts = ["0", "0"], steps = array<i64: 1, 1>, sizes = ["n", "9"]} : (f32[n, 9]) -> f32[n, 9]
  %d = slice(%x) {starts = ["0", "8"], steps = array<i64: 1, -1>, sizes = ["n", "9"]} : (f32[n, 9]) -> f32[n, 9]
  %e = reshape(%d) {shape = ["1", "n", "9"]} : (f32[n, 9]) -> f32[1, n, 9]
  %f = transpose(%e) {permutation = array<i64: 1, 0, 2>} : (f32[1, n, 9]) -> f32[n, 1, 9]
  return %b, %c, %d, %f : f32[n, 2], f32[n, 9], f32[n, 9], f32[n, 1, 9]
}

// gives
module {
  func.func @main(%arg0: f32[n, 9]) -> (f32[n, 2], f32[n, 9], f32[n, 9], f32[n, 1, 9]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = slice(%arg0) {sizes = ["n", "2"], starts = ["0", "6"], steps = array<i64: 1, -6>} : (f32[n, 9]) -> f32[n, 2]
    %1 = slice(%arg0) {sizes = ["n", "9"], starts = ["0", "8"], steps = array<i64: 1, -1>} : (f32[n, 9]) -> f32[n, 9]
    %2 = reshape(%1) {shape = ["n", "1", "9"]} : (f32[n, 9]) -> f32[n, 1, 9]
    return %0, %arg0, %1, %2 : f32[n, 2], f32[n, 9], f32[n, 9], f32[n, 1, 9]
  }
}
