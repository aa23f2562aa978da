// run cpu: legalize, sink
// Channels that are shuffled, sliced and chosen in a picture stay last; two products in a row.
func.func @main(%x: f32[n, 8, 5, 5], %w: f32[8, 8, 1, 1], %v: f32[4, 4, 1, 1], %i: i64[9]) -> f32[n, 4, 5, 9] attributes {heddle.symbols = {n = [1, 9]}} {
  %a = conv(%x, %w) {dilations = array<i64: 1, 1>, groups = 1, layout = "channels_first", padding = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (f32[n, 8, 5, 5], f32[8, 8, 1, 1]) -> f32[n, 8, 5, 5]
  %b = reshape(%a) {shape = ["n", "2", "4", "5", "5"]} : (f32[n, 8, 5, 5]) -> f32[n, 2, 4, 5, 5]
  %c = transpose(%b) {permutation = array<i64: 0, 2, 1, 3, 4>} : (f32[n, 2, 4, 5, 5]) -> f32[n, 4, 2, 5, 5]
  %d = reshape(%c) {shape = ["n", "8", "5", "5"]} : (f32[n, 4, 2, 5, 5]) -> f32[n, 8, 5, 5]
  %e = slice(%d) {sizes = ["n", "4", "5", "5"], starts = ["0", "4", "0", "0"], steps = array<i64: 1, 1, 1, 1>} : (f32[n, 8, 5, 5]) -> f32[n, 4, 5, 5]
  %f = gather(%e, %i) {axis = 3 : i64} : (f32[n, 4, 5, 5], i64[9]) -> f32[n, 4, 5, 9]
  %g = conv(%f, %v) {dilations = array<i64: 1, 1>, groups = 1, layout = "channels_first", padding = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (f32[n, 4, 5, 9], f32[4, 4, 1, 1]) -> f32[n, 4, 5, 9]
  return %g : f32[n, 4, 5, 9]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8, 5, 5], %arg1: f32[8, 8, 1, 1], %arg2: f32[4, 4, 1, 1], %arg3: i64[9]) -> f32[n, 4, 5, 9] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = transpose(%arg0) {permutation = array<i64: 0, 2, 3, 1>} : (f32[n, 8, 5, 5]) -> f32[n, 5, 5, 8]
    %1 = reshape(%arg1) {shape = ["8", "8"]} : (f32[8, 8, 1, 1]) -> f32[8, 8]
    %2 = transpose(%1) {permutation = array<i64: 1, 0>} : (f32[8, 8]) -> f32[8, 8]
    %3 = matmul(%0, %2) {precision = "full"} : (f32[n, 5, 5, 8], f32[8, 8]) -> f32[n, 5, 5, 8]
    %4 = reshape(%3) {shape = ["n", "5", "5", "2", "4"]} : (f32[n, 5, 5, 8]) -> f32[n, 5, 5, 2, 4]
    %5 = transpose(%4) {permutation = array<i64: 0, 1, 2, 4, 3>} : (f32[n, 5, 5, 2, 4]) -> f32[n, 5, 5, 4, 2]
    %6 = reshape(%5) {shape = ["n", "5", "5", "8"]} : (f32[n, 5, 5, 4, 2]) -> f32[n, 5, 5, 8]
    %7 = slice(%6) {sizes = ["n", "5", "5", "4"], starts = ["0", "0", "0", "4"], steps = array<i64: 1, 1, 1, 1>} : (f32[n, 5, 5, 8]) -> f32[n, 5, 5, 4]
    %8 = gather(%7, %arg3) {axis = 2 : i64} : (f32[n, 5, 5, 4], i64[9]) -> f32[n, 5, 9, 4]
    %9 = reshape(%arg2) {shape = ["4", "4"]} : (f32[4, 4, 1, 1]) -> f32[4, 4]
    %10 = transpose(%9) {permutation = array<i64: 1, 0>} : (f32[4, 4]) -> f32[4, 4]
    %11 = matmul(%8, %10) {precision = "full"} : (f32[n, 5, 9, 4], f32[4, 4]) -> f32[n, 5, 9, 4]
    %12 = transpose(%11) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 5, 9, 4]) -> f32[n, 4, 5, 9]
    return %12 : f32[n, 4, 5, 9]
  }
}
