// run cpu: cut
// Columns of one weight in parts: three products, and the bias in parts, too. Parts that overlap stay.
func.func @main(%x: f32[n, 64]) -> (f32[n, 64], f32[n, 64], f32[n, 64], f32[n, 9], f32[n, 9]) attributes {heddle.symbols = {n = [1, 9]}} {
  %w = weight() {name = "w"} : () -> f32[192, 64]
  %v = weight() {name = "v"} : () -> f32[64, 16]
  %bias = weight() {name = "b"} : () -> f32[192]
  %t = transpose(%w) {permutation = array<i64: 1, 0>} : (f32[192, 64]) -> f32[64, 192]
  %p = matmul(%x, %t) {precision = "full"} : (f32[n, 64], f32[64, 192]) -> f32[n, 192]
  %s = add(%p, %bias) : (f32[n, 192], f32[192]) -> f32[n, 192]
  %1 = slice(%s) {sizes = ["n", "64"], starts = ["0", "0"], steps = array<i64: 1, 1>} : (f32[n, 192]) -> f32[n, 64]
  %2 = slice(%s) {sizes = ["n", "64"], starts = ["0", "64"], steps = array<i64: 1, 1>} : (f32[n, 192]) -> f32[n, 64]
  %3 = slice(%s) {sizes = ["n", "64"], starts = ["0", "128"], steps = array<i64: 1, 1>} : (f32[n, 192]) -> f32[n, 64]
  %q = matmul(%x, %v) {precision = "full"} : (f32[n, 64], f32[64, 16]) -> f32[n, 16]
  %4 = slice(%q) {sizes = ["n", "9"], starts = ["0", "0"], steps = array<i64: 1, 1>} : (f32[n, 16]) -> f32[n, 9]
  %5 = slice(%q) {sizes = ["n", "9"], starts = ["0", "7"], steps = array<i64: 1, 1>} : (f32[n, 16]) -> f32[n, 9]
  return %1, %2, %3, %4, %5 : f32[n, 64], f32[n, 64], f32[n, 64], f32[n, 9], f32[n, 9]
}

// gives
module {
  func.func @main(%arg0: f32[n, 64]) -> (f32[n, 64], f32[n, 64], f32[n, 64], f32[n, 9], f32[n, 9]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = weight() {name = "w"} : () -> f32[192, 64]
    %1 = weight() {name = "v"} : () -> f32[64, 16]
    %2 = weight() {name = "b"} : () -> f32[192]
    %3 = slice(%0) {sizes = ["64", "64"], starts = ["0", "0"], steps = array<i64: 1, 1>} : (f32[192, 64]) -> f32[64, 64]
    %4 = transpose(%3) {permutation = array<i64: 1, 0>} : (f32[64, 64]) -> f32[64, 64]
    %5 = slice(%0) {sizes = ["64", "64"], starts = ["64", "0"], steps = array<i64: 1, 1>} : (f32[192, 64]) -> f32[64, 64]
    %6 = transpose(%5) {permutation = array<i64: 1, 0>} : (f32[64, 64]) -> f32[64, 64]
    %7 = slice(%0) {sizes = ["64", "64"], starts = ["128", "0"], steps = array<i64: 1, 1>} : (f32[192, 64]) -> f32[64, 64]
    %8 = transpose(%7) {permutation = array<i64: 1, 0>} : (f32[64, 64]) -> f32[64, 64]
    %9 = matmul(%arg0, %4) {precision = "full"} : (f32[n, 64], f32[64, 64]) -> f32[n, 64]
    %10 = matmul(%arg0, %6) {precision = "full"} : (f32[n, 64], f32[64, 64]) -> f32[n, 64]
    %11 = matmul(%arg0, %8) {precision = "full"} : (f32[n, 64], f32[64, 64]) -> f32[n, 64]
    %12 = slice(%2) {sizes = ["64"], starts = ["0"], steps = array<i64: 1>} : (f32[192]) -> f32[64]
    %13 = add(%9, %12) : (f32[n, 64], f32[64]) -> f32[n, 64]
    %14 = slice(%2) {sizes = ["64"], starts = ["64"], steps = array<i64: 1>} : (f32[192]) -> f32[64]
    %15 = add(%10, %14) : (f32[n, 64], f32[64]) -> f32[n, 64]
    %16 = slice(%2) {sizes = ["64"], starts = ["128"], steps = array<i64: 1>} : (f32[192]) -> f32[64]
    %17 = add(%11, %16) : (f32[n, 64], f32[64]) -> f32[n, 64]
    %18 = matmul(%arg0, %1) {precision = "full"} : (f32[n, 64], f32[64, 16]) -> f32[n, 16]
    %19 = slice(%18) {sizes = ["n", "9"], starts = ["0", "0"], steps = array<i64: 1, 1>} : (f32[n, 16]) -> f32[n, 9]
    %20 = slice(%18) {sizes = ["n", "9"], starts = ["0", "7"], steps = array<i64: 1, 1>} : (f32[n, 16]) -> f32[n, 9]
    return %13, %15, %17, %19, %20 : f32[n, 64], f32[n, 64], f32[n, 64], f32[n, 9], f32[n, 9]
  }
}
