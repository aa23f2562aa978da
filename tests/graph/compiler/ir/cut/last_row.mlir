// run cpu: cut
// Of a product that follows a sum of two, one row is wanted; another value is wanted whole.
func.func @main(%x: f32[b, s, 64], %y: f32[b, s, 64]) -> (f32[b, 1, 9], f32[b, s, 64]) attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
  %w = weight() {name = "w"} : () -> f32[64, 9]
  %e = exp(%y) : (f32[b, s, 64]) -> f32[b, s, 64]
  %a = add(%x, %e) : (f32[b, s, 64], f32[b, s, 64]) -> f32[b, s, 64]
  %p = matmul(%a, %w) {precision = "full"} : (f32[b, s, 64], f32[64, 9]) -> f32[b, s, 9]
  %l = slice(%p) {sizes = ["b", "1", "9"], starts = ["0", "s - 1", "0"], steps = array<i64: 1, 1, 1>} : (f32[b, s, 9]) -> f32[b, 1, 9]
  return %l, %e : f32[b, 1, 9], f32[b, s, 64]
}

// gives
module {
  func.func @main(%arg0: f32[b, s, 64], %arg1: f32[b, s, 64]) -> (f32[b, 1, 9], f32[b, s, 64]) attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
    %0 = weight() {name = "w"} : () -> f32[64, 9]
    %1 = exp(%arg1) : (f32[b, s, 64]) -> f32[b, s, 64]
    %2 = slice(%arg0) {sizes = ["b", "1", "64"], starts = ["0", "s - 1", "0"], steps = array<i64: 1, 1, 1>} : (f32[b, s, 64]) -> f32[b, 1, 64]
    %3 = slice(%1) {sizes = ["b", "1", "64"], starts = ["0", "s - 1", "0"], steps = array<i64: 1, 1, 1>} : (f32[b, s, 64]) -> f32[b, 1, 64]
    %4 = add(%2, %3) : (f32[b, 1, 64], f32[b, 1, 64]) -> f32[b, 1, 64]
    %5 = matmul(%4, %0) {precision = "full"} : (f32[b, 1, 64], f32[64, 9]) -> f32[b, 1, 9]
    return %5, %1 : f32[b, 1, 9], f32[b, s, 64]
  }
}
