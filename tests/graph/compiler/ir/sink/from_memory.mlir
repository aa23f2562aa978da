// run cpu: sink
// Memory is turned and computed at once, unless a reduction, a transpose or a product ends that.
func.func @main(%x: f32[n, 5, 8], %q: f32[n, 4, 8]) -> (f32[n, 8, 5], f32[n, 1, 5], f32[n, 5, 8], f32[n, 4, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = transpose(%x) {permutation = array<i64: 0, 2, 1>} : (f32[n, 5, 8]) -> f32[n, 8, 5]
  %b = exp(%a) : (f32[n, 8, 5]) -> f32[n, 8, 5]
  %c = softmax(%b) {axis = 2 : i64} : (f32[n, 8, 5]) -> f32[n, 8, 5]
  %d = abs(%a) : (f32[n, 8, 5]) -> f32[n, 8, 5]
  %e = max(%d) {axis = 1 : i64} : (f32[n, 8, 5]) -> f32[n, 1, 5]
  %f = neg(%a) : (f32[n, 8, 5]) -> f32[n, 8, 5]
  %g = transpose(%f) {permutation = array<i64: 0, 2, 1>} : (f32[n, 8, 5]) -> f32[n, 5, 8]
  %h = sqrt(%a) : (f32[n, 8, 5]) -> f32[n, 8, 5]
  %i = matmul(%q, %h) {precision = "full"} : (f32[n, 4, 8], f32[n, 8, 5]) -> f32[n, 4, 5]
  return %c, %e, %g, %i : f32[n, 8, 5], f32[n, 1, 5], f32[n, 5, 8], f32[n, 4, 5]
}

// gives
module {
  func.func @main(%arg0: f32[n, 5, 8], %arg1: f32[n, 4, 8]) -> (f32[n, 8, 5], f32[n, 1, 5], f32[n, 5, 8], f32[n, 4, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = transpose(%arg0) {permutation = array<i64: 0, 2, 1>} : (f32[n, 5, 8]) -> f32[n, 8, 5]
    %1 = exp(%0) : (f32[n, 8, 5]) -> f32[n, 8, 5]
    %2 = softmax(%1) {axis = 2 : i64} : (f32[n, 8, 5]) -> f32[n, 8, 5]
    %3 = abs(%arg0) : (f32[n, 5, 8]) -> f32[n, 5, 8]
    %4 = max(%3) {axis = 2 : i64} : (f32[n, 5, 8]) -> f32[n, 5, 1]
    %5 = reshape(%4) {shape = ["n", "1", "5"]} : (f32[n, 5, 1]) -> f32[n, 1, 5]
    %6 = neg(%arg0) : (f32[n, 5, 8]) -> f32[n, 5, 8]
    %7 = sqrt(%arg0) : (f32[n, 5, 8]) -> f32[n, 5, 8]
    %8 = transpose(%7) {permutation = array<i64: 0, 2, 1>} : (f32[n, 5, 8]) -> f32[n, 8, 5]
    %9 = matmul(%arg1, %8) {precision = "full"} : (f32[n, 4, 8], f32[n, 8, 5]) -> f32[n, 4, 5]
    return %2, %5, %6, %9 : f32[n, 8, 5], f32[n, 1, 5], f32[n, 5, 8], f32[n, 4, 5]
  }
}
