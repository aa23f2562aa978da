// run cpu: fold_constants
// 65536 elements would only make the artifact larger.
func.func @main() -> f32[256, 256] attributes {heddle.symbols = {}} {
  %a = constant() {value = dense<2.0> : tensor<f32>} : () -> f32[]
  %b = broadcast_to(%a) {shape = ["256", "256"]} : (f32[]) -> f32[256, 256]
  return %b : f32[256, 256]
}

// gives
module {
  func.func @main() -> f32[256, 256] attributes {heddle.symbols = {}} {
    %0 = constant() {value = dense<2.000000e+00> : tensor<f32>} : () -> f32[]
    %1 = broadcast_to(%0) {shape = ["256", "256"]} : (f32[]) -> f32[256, 256]
    return %1 : f32[256, 256]
  }
}
