// run cpu: legalize, sink
// Between convolutions channels stay last: scales of a channel, what x is read by anyway, an axis.
func.func @main(%x: f32[n, 8, 5, 5], %scale: f32[8, 1, 1], %w: f32[8, 8, 3, 3]) -> (f32[n, 8, 3, 3], f32[n, 1, 5, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
  %a = conv(%x, %w) {dilations = array<i64: 1, 1>, groups = 1, layout = "channels_first", padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (f32[n, 8, 5, 5], f32[8, 8, 3, 3]) -> f32[n, 8, 5, 5]
  %b = mul(%a, %scale) : (f32[n, 8, 5, 5], f32[8, 1, 1]) -> f32[n, 8, 5, 5]
  %c = add(%b, %x) : (f32[n, 8, 5, 5], f32[n, 8, 5, 5]) -> f32[n, 8, 5, 5]
  %d = max(%c) {axis = 1} : (f32[n, 8, 5, 5]) -> f32[n, 1, 5, 5]
  %e = conv(%c, %w) {dilations = array<i64: 1, 1>, groups = 1, layout = "channels_first", padding = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (f32[n, 8, 5, 5], f32[8, 8, 3, 3]) -> f32[n, 8, 3, 3]
  return %e, %d : f32[n, 8, 3, 3], f32[n, 1, 5, 5]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8, 5, 5], %arg1: f32[8, 1, 1], %arg2: f32[8, 8, 3, 3]) -> (f32[n, 8, 3, 3], f32[n, 1, 5, 5]) attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = transpose(%arg0) {permutation = array<i64: 0, 2, 3, 1>} : (f32[n, 8, 5, 5]) -> f32[n, 5, 5, 8]
    %1 = transpose(%arg2) {permutation = array<i64: 0, 2, 3, 1>} : (f32[8, 8, 3, 3]) -> f32[8, 3, 3, 8]
    %2 = reshape(%1) {shape = ["1", "8", "72"]} : (f32[8, 3, 3, 8]) -> f32[1, 8, 72]
    %3 = window_matmul(%0, %2) {dilations = array<i64: 1, 1>, kernel = array<i64: 3, 3>, padding = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>} : (f32[n, 5, 5, 8], f32[1, 8, 72]) -> f32[n, 5, 5, 8]
    %4 = reshape(%arg1) {shape = ["8"]} : (f32[8, 1, 1]) -> f32[8]
    %5 = mul(%3, %4) : (f32[n, 5, 5, 8], f32[8]) -> f32[n, 5, 5, 8]
    %6 = add(%5, %0) : (f32[n, 5, 5, 8], f32[n, 5, 5, 8]) -> f32[n, 5, 5, 8]
    %7 = max(%6) {axis = 3 : i64} : (f32[n, 5, 5, 8]) -> f32[n, 5, 5, 1]
    %8 = reshape(%7) {shape = ["n", "1", "5", "5"]} : (f32[n, 5, 5, 1]) -> f32[n, 1, 5, 5]
    %9 = window_matmul(%6, %2) {dilations = array<i64: 1, 1>, kernel = array<i64: 3, 3>, padding = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (f32[n, 5, 5, 8], f32[1, 8, 72]) -> f32[n, 3, 3, 8]
    %10 = transpose(%9) {permutation = array<i64: 0, 3, 1, 2>} : (f32[n, 3, 3, 8]) -> f32[n, 8, 3, 3]
    return %10, %8 : f32[n, 8, 3, 3], f32[n, 1, 5, 5]
  }
}
